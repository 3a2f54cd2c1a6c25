"""Running work in threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def in_thread_if_possible(work: Callable[[], T]) -> T:
    """Run short work in a thread, or here if no thread can be started now."""
    try:
        return await asyncio.to_thread(work)
    except RuntimeError:
        return work()


async def in_thread(threads: Executor, work: Callable[[], T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """Run work in a thread.

    If the call is cancelled, `on_cancel` is called at once. Then it waits for work that has begun, so that the caller
    may close what the work uses.
    """
    future = threads.submit(work)
    waiting = asyncio.wrap_future(future)
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # a cancelled call does not read it
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        on_cancel()
        if not future.cancel():
            await asyncio.wait({waiting})
        raise
