"""Work that threads do ahead of the one who needs it."""

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
        function: what to compute; it has to release the interpreter lock for threads to help.
        items: what to compute it of, taken only as far ahead as needed; there may be no end of them.
        threads: threads that compute.
        held: results that may wait.

    Raises:
        Exception: what ``function`` raised, where its result would have been.
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
