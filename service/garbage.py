"""Python's full garbage collections happen when few requests would wait for them.

A full collection looks at every object there is while nothing else runs: with a thousand requests under way it took a
fifth of a second (docs/performance.md). What is freed by counting references, almost all, does not wait for it.
"""

import asyncio
import gc
from collections.abc import Callable

_EVERY_SECONDS = 10.0
_FEW_REQUESTS = 64
_MOST_ROUNDS = 60  # without a collection, however many requests there are
_NEVER = 1 << 30  # gc counts to this in a C int


def take_over() -> None:
    """Have no full collection happen by itself, and none look at what is there by now: it stays until the end."""
    gc.collect()
    gc.freeze()
    youngest, middle, _ = gc.get_threshold()
    gc.set_threshold(youngest, middle, _NEVER)


async def collect(requests: Callable[[], int], collect_all: Callable[[], object] = gc.collect) -> None:
    """Collect now and then, until cancelled.

    Args:
        requests: says how many are under way.
        collect_all: does it.
    """
    put_off = 0
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        put_off += 1
        if requests() < _FEW_REQUESTS or put_off == _MOST_ROUNDS:
            put_off = 0
            collect_all()
