"""The share of the time for which a GPU computes no kernel.

A loop of the device (models/graphs/device_loop.py) may be one event of the profiler or many: what happens between its
kernels may be hidden, so the share is that of the rest.
"""

from collections.abc import Callable, Sequence

from torch.profiler import ProfilerActivity, profile

Interval = tuple[float, float]

# Of the time from the first kernel to the last: before and after, a pipeline fills and empties.
_STEADY = (0.1, 0.9)


def idle_share(kernels: Sequence[Interval]) -> float | None:
    """Return the share of the steady part in which no kernel runs; None without a steady part.

    Args:
        kernels: begin and end of each, in any order and unit; they may overlap.
    """
    if not kernels:
        return None
    first, last = min(begin for begin, _ in kernels), max(end for _, end in kernels)
    start, stop = (first + share * (last - first) for share in _STEADY)
    if stop <= start:
        return None
    busy, done = 0.0, start
    for begin, end in sorted(kernels):
        begin, end = max(begin, done), min(end, stop)
        if end > begin:
            busy, done = busy + end - begin, end
    return 1 - busy / (stop - start)


def kernels_of(call: Callable[[], object]) -> list[Interval]:
    """Return begin and end of each kernel of a call on a GPU, in microseconds; copies are no kernels."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiled:
        call()
    return [
        (one.time_range.start, one.time_range.end)
        for one in profiled.events()
        if one.device_type.name == "CUDA" and not one.name.startswith(("Memcpy", "Memset"))
    ]
