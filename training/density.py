"""Leaving out clips with transcripts that are too long for their audio: a batch with one needs far more memory."""

from collections import Counter

from training.takes import Take

# Bounds of the histogram, in multiples of ``most``.
_MULTIPLES = (1, 1.5, 2, 4, 8)


class DensityFilter:
    """Leaves out takes with too many labels in a second, and counts them."""

    def __init__(self, most: float | None) -> None:
        """Leave out takes with over ``most`` labels in a second; None leaves out none."""
        self._most = most
        self._seconds = 0.0
        self._histogram = Counter[float]()

    def keeps(self, take: Take, labels: int) -> bool:
        """Return whether to use a take.

        Args:
            take: the take.
            labels: those of its transcript; labels of prompts do not count, because their number does not depend on
                the length.
        """
        if self._most is None or labels <= self._most * take.seconds:
            return True
        rate = labels / take.seconds
        self._seconds += take.seconds
        self._histogram[max(bound for bound in _MULTIPLES if rate >= bound * self._most)] += 1
        return False

    def line(self) -> str | None:
        """Return a line about the takes that were left out, if any."""
        if not self._histogram:
            return None
        found = sorted(self._histogram.items())
        counts = ", ".join(f"{count} from {bound * (self._most or 0):g} on" for bound, count in found)
        left_out = f"{self._histogram.total():,} takes ({self._seconds:.1f} s)"
        return f"left out: {left_out} with over {self._most:g} labels a second: {counts}"
