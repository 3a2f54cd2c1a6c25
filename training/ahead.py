"""Prefetching: threads compute results before they are needed."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def ahead(
    function: Callable[[_Item], _Result], items: Iterable[_Item], *, threads: int = 2, held: int = 4
) -> Generator[_Result, None, None]:
    """Yield ``function`` of each item, in order, while threads compute the next few; at most ``held`` results wait.

    Threads help only if the function releases the interpreter lock. Items may be endless.

    Raises:
        Exception: what ``function`` raised, in place of its result.
    """
    pending: deque[Future[_Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > held:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
