"""Work that happens in threads."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def finish_even_if_cancelled(work: "asyncio.Future[T]") -> T:
    """Await the work of a thread, which cannot be cancelled: what it reads must not be closed under it."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise
