"""Measured batch budgets: the least that are nearly as fast as any. A CPU's follows from two times; a GPU tries some.

A budget is measured once for each setup; the engine keeps it in a file.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from service.engine.kept import KeptFile

# Batches that reach this share of the highest throughput are large enough: larger ones make requests wait longer.
KNEE_SHARE = 0.95
_MOST_KEPT = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a budget depends on.

    Attributes:
        model: identity of the checkpoint.
        device: name of the processor or the GPU.
        dtype: dtype of the weights.
        threads: threads of a batch on a CPU; 0 on a GPU.
        longest: the longest utterance in seconds.
        versions: versions of Steno and PyTorch.
        options: options of the model that change its speed and memory.
        share: share of the highest throughput that the budget has.
    """

    model: str
    device: str
    dtype: str
    threads: int
    longest: float
    versions: str
    options: str
    share: float


class BudgetCache:
    """Measured budgets, in `budgets.json`."""

    def __init__(self) -> None:
        self._file = KeptFile("budgets.json")

    def find(self, setup: Setup) -> float | None:
        """Return the measured budget of a setup in seconds; None if there is none."""
        return next((seconds for one, seconds in self if one == setup), None)

    def __iter__(self) -> Iterator[tuple[Setup, float]]:
        """Yield all setups with their budgets."""
        yield from self._file.read(_parsed) or []

    def keep(self, setup: Setup, seconds: float) -> None:
        """Write a budget."""
        kept = [(one, measured) for one, measured in self if one != setup] + [(setup, seconds)]
        self._file.write([{"setup": asdict(one), "seconds": measured} for one, measured in kept[-_MOST_KEPT:]])


def _parsed(entries: Any) -> list[tuple[Setup, float]]:  # noqa: ANN401  # JSON
    return [(Setup(**entry["setup"]), float(entry["seconds"])) for entry in entries]


def knee(one: float, many: float, rows: int, seconds: float) -> float:
    """Return the audio-seconds from which on a batch has 95 % of the highest throughput.

    A batch takes a fixed time, and more for each utterance. Two measured times give both.

    Args:
        one: time of a batch of one utterance, in seconds.
        many: time of a batch of ``rows`` utterances, in seconds.
        rows: utterances of the larger batch.
        seconds: length of each utterance.
    """
    each = (many - one) / (rows - 1)
    fixed = one - each
    if each <= 0:
        return float("inf")
    return max(0.0, fixed) * KNEE_SHARE / ((1 - KNEE_SHARE) * each) * seconds


def least_fast_enough(
    least: float, most: float, speed: Callable[[float], Generator[T, None, float]]
) -> Generator[T, None, float]:
    """Return the least budget that has 95 % of the highest throughput: budgets are doubled until one does not fit.

    Args:
        least: the smallest budget to try, in seconds, and the result if it does not fit either.
        most: the largest one.
        speed: runs batches of a budget, and returns their throughput, or 0 if they do not fit. What it yields is passed
            on.
    """
    speeds: dict[float, float] = {}
    budget = min(least, most)
    while (found := (yield from speed(budget))) and budget < most:
        speeds[budget] = found
        budget = min(2 * budget, most)
    speeds[budget] = found
    enough = KNEE_SHARE * max(speeds.values())
    return next(budget for budget, found in speeds.items() if found >= enough)
