"""Measured batch budgets: the least that are nearly as fast as any. A CPU's follows from two times; a GPU tries some.

A budget is measured once for each setup; the engine keeps it in a file.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from service.engine.kept import KeptFile

# Batches that reach this share of the highest throughput are large enough: larger ones make requests wait longer.
KNEE_SHARE = 0.95
_MOST_KEPT = 64

T = TypeVar("T")


class BudgetCache:
    """Measured budgets in seconds, in `budgets.json`, by a text of all that they depend on."""

    def __init__(self) -> None:
        self._file = KeptFile("budgets.json")

    def find(self, setup: str) -> float | None:
        """Return the measured budget of a setup; None if there is none."""
        return self._known().get(setup)

    def keep(self, setup: str, seconds: float) -> None:
        """Write a budget."""
        kept = {one: measured for one, measured in self._known().items() if one != setup} | {setup: seconds}
        self._file.write(dict(list(kept.items())[-_MOST_KEPT:]))

    def _known(self) -> dict[str, float]:
        return self._file.read(_parsed) or {}


def _parsed(known: Any) -> dict[str, float]:  # noqa: ANN401  # JSON
    return {str(setup): float(seconds) for setup, seconds in known.items()}


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
