"""Running work in threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def in_thread(threads: Executor, work: Callable[[], T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """Run work in a thread.

    If the call is cancelled, work that has begun is waited for, so that the caller may then close what it uses.

    Args:
        threads: the executor.
        work: the work.
        on_cancel: called when the call is cancelled.
    """
    future = threads.submit(work)
    waiting = asyncio.wrap_future(future)
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may have left
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        on_cancel()
        if not future.cancel():
            await asyncio.wait({waiting})
        raise
