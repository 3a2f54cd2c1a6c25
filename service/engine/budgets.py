"""Measured batch budgets: the least that are nearly as fast as any. A CPU's follows from two times; a GPU tries some.

A budget is measured once for each setup; the engine keeps it in a file (`kept.BUDGETS`).
"""

from collections.abc import Callable, Generator
from typing import TypeVar

# Batches that reach this share of the highest throughput are large enough: larger ones make requests wait longer.
KNEE_SHARE = 0.95

T = TypeVar("T")


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
