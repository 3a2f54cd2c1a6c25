"""Work that happens in threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def in_thread(threads: Executor, work: Callable[[], T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """Do work in a thread. If nobody wants it any more, it is not begun, or else waited for: a thread has no end.

    Args:
        threads: where there is one.
        work: what to do; what it reads is not closed under it.
        on_cancel: called when it is no longer wanted.
    """
    future = threads.submit(work)
    waiting = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        on_cancel()
        if not future.cancel():
            await asyncio.wait({waiting})
        raise
