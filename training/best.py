"""The lowest word error rate of a run, and how long ago it was."""

from collections.abc import Iterable

# The averaged weights at the lowest word error rate, in the run's folder.
BEST = "best.nemo"


class Best:
    """Tracks measurements of the word error rate.

    Attributes:
        rate: the lowest so far, or None.
    """

    def __init__(self, patience: int | None, before: Iterable[float] = ()) -> None:
        """Begin with the rates that were measured before, in order; None has patience for ever."""
        self.rate: float | None = None
        self._patience = patience
        self._since = 0
        for rate in before:
            self.note(rate)

    def note(self, rate: float) -> bool:
        """Add a rate; return whether it is the lowest."""
        if self.rate is None or rate < self.rate:
            self.rate, self._since = rate, 0
            return True
        self._since += 1
        return False

    @property
    def is_long_ago(self) -> bool:
        """Whether the lowest rate is ``patience`` measurements ago."""
        return self._patience is not None and self._since >= self._patience
