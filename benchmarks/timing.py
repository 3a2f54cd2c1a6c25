"""Timing calls, and statistics of the times."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import torch

K = TypeVar("K")

WARM_UPS = 5


def times_of(call: Callable[[], object], repeats: int, warm_ups: int = WARM_UPS) -> list[float]:
    """Return the seconds of each call, after some unmeasured ones.

    Args:
        call: the call; it must return only when its result is on the host.
        repeats: measured calls.
        warm_ups: calls before them.
    """
    times = []
    for _ in range(warm_ups + repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times[warm_ups:]


def times_in_turns(calls: Mapping[K, Callable[[], object]], turns: int, warm_ups: int) -> dict[K, list[float]]:
    """Return the seconds of some calls, by name, made one after the other in each turn; see ``times_of``.

    So load on the machine affects all of them, and times of one turn can be compared.
    """
    times: dict[K, list[float]] = {name: [] for name in calls}
    for _ in range(warm_ups + turns):
        for name, call in calls.items():
            times[name] += times_of(call, 1, warm_ups=0)
    return {name: taken[warm_ups:] for name, taken in times.items()}


def finished(call: Callable[[], object], device: torch.device) -> None:
    """Make a call, and wait until the device has done its work."""
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True, slots=True)
class Latency:
    """Statistics of the times of a call, in seconds.

    Attributes:
        mean: their mean.
        p50, p90, p95, p99: percentiles.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, times: Sequence[float]) -> "Latency":
        """Compute the statistics; a percentile is the smallest time that its share of the times does not exceed."""
        ordered = sorted(times)
        shares = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9, 0.95, 0.99))
        return cls(sum(times) / len(times), *shares)

    def row(self) -> dict[str, float]:
        """Return the statistics for JSON."""
        return asdict(self)
