"""The lowest word error rate that a run has had, and how long ago that was."""

from collections.abc import Iterable


class Best:
    """Takes note of measurements.

    Attributes:
        rate: the lowest so far, or None.
    """

    def __init__(self, patience: int | None, before: Iterable[float] = ()) -> None:
        """Begin anew, or where a run was stopped.

        Args:
            patience: measurements without a lower rate after which a run is over; None for any number.
            before: the rates that were measured already, in order.
        """
        self.rate: float | None = None
        self._patience = patience
        self._since = 0
        for rate in before:
            self.note(rate)

    def note(self, rate: float) -> bool:
        """Take note of a rate; returns whether it is the lowest."""
        if self.rate is None or rate < self.rate:
            self.rate, self._since = rate, 0
            return True
        self._since += 1
        return False

    @property
    def is_long_ago(self) -> bool:
        """Whether patience is at its end."""
        return self._patience is not None and self._since >= self._patience
