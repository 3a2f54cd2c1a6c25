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
    """Yield ``function`` of each item, in order, while threads compute the next few.

    Args:
        function: the function; threads help only if it releases the interpreter lock.
        items: its arguments, iterated only as far ahead as needed; may be endless.
        threads: number of threads.
        held: most results that wait.

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
