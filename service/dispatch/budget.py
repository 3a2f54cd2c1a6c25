"""The batch budget of a device: it shrinks when a batch does not fit, and grows again as batches fit.

What fits is not known in advance: other processes may take memory of the same GPU, and release it.
"""

# An utterance that was in this number of batches that did not fit runs alone: it may be the cause.
MOST_MISFITS = 3
_LEAST_SHARE = 1 / 32  # of the full budget; longer utterances run alone anyway
_GROWTH = 1.25
_FIRST_PATIENCE, _MOST_PATIENCE = 16, 1024  # batches; the first misfit doubles it already
_ROUNDING = 1e-6  # of sums
_INFORMATIVE_SHARE = 0.5  # of the budget; smaller batches do not show whether a larger one would fit


class Budget:
    """The audio-seconds, padding included, that batches for one model may have on one device.

    After a batch that did not fit, it is half of that batch. After a number of batches that fitted and used at least
    half of it, it grows by a quarter. Each misfit doubles that number, so that a permanent limit is hit more and more
    rarely.

    Args:
        full: the budget that the engine announced.

    Attributes:
        seconds: the current budget.
    """

    def __init__(self, full: float) -> None:
        self._full = full
        self.seconds = full
        self._patience = _FIRST_PATIENCE
        self._fitting = 0

    def misfit(self, padded_seconds: float) -> None:
        """Record that a batch of several utterances did not fit."""
        if padded_seconds > self.seconds * (1 + _ROUNDING):
            return  # it was formed before the budget was halved, as batches in other slots are
        self.seconds = max(min(self.seconds, padded_seconds) / 2, self._full * _LEAST_SHARE)
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._fitting = 0

    def fit(self, padded_seconds: float) -> None:
        """Record that a batch fitted."""
        if self.seconds >= self._full or padded_seconds < _INFORMATIVE_SHARE * self.seconds:
            return
        self._fitting += 1
        if self._fitting >= self._patience:
            self._fitting = 0
            self.seconds = min(self._full, self.seconds * _GROWTH)
