"""Run Python's full garbage collections, and return free memory to the system, when few requests are under way.

A full collection visits all objects and stops everything else: with a thousand requests under way it took a fifth of a
second (docs/performance.md at 4f03a9e). Reference counting frees almost all objects without it.
"""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress

from service.memory import return_free_memory

_EVERY_SECONDS = 10.0
_FEW_REQUESTS = 64
_MOST_ROUNDS = 60  # rounds without a collection, even with many requests
_NEVER = 1 << 30  # gc's counter is a C int


def take_over() -> None:
    """Turn off automatic full collections, and exempt the objects that exist now, which live until the end."""
    gc.collect()
    gc.freeze()
    youngest, middle, _ = gc.get_threshold()
    gc.set_threshold(youngest, middle, _NEVER)


async def collect(requests: Callable[[], int], collect_all: Callable[[], object]) -> None:
    """Run a full collection now and then, until cancelled, when few requests are under way."""
    put_off = 0
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        put_off += 1
        if requests() < _FEW_REQUESTS or put_off == _MOST_ROUNDS:
            put_off = 0
            collect_all()
            with suppress(RuntimeError):  # no thread can be started now
                await asyncio.to_thread(return_free_memory)
