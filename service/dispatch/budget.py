"""How large batches may be after one did not fit the device: less at once, and more again as batches fit.

What fits is not known beforehand: other processes may take memory of the same GPU, and give it back.
"""

# An utterance that was in so many batches that did not fit runs alone: it may be the cause.
MOST_MISFITS = 3
_LEAST_SHARE = 1 / 32  # of the full budget; an utterance that is longer leaves alone anyway
_GROWTH = 1.25
_FIRST_PATIENCE, _MOST_PATIENCE = 16, 1024
_TELLING_SHARE = 0.5  # of the budget; a batch that is smaller does not tell whether a larger one would fit


class Budget:
    """The audio-seconds, padding included, that batches for one model may have on one device.

    A batch that does not fit halves it. After so many batches in a row that used it and did fit, it grows by a quarter;
    each misfit makes that number twice as large, so that a limit that stays is met ever more rarely.

    Args:
        full: what the engine announced.

    Attributes:
        seconds: what it is now.
    """

    def __init__(self, full: float) -> None:
        self._full = full
        self.seconds = full
        self._patience = _FIRST_PATIENCE
        self._fitting = 0

    def misfit(self, padded_seconds: float) -> None:
        """A batch of several utterances did not fit."""
        self.seconds = max(min(self.seconds, padded_seconds) / 2, self._full * _LEAST_SHARE)
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._fitting = 0

    def fit(self, padded_seconds: float) -> None:
        """A batch did fit."""
        if self.seconds >= self._full or padded_seconds < _TELLING_SHARE * self.seconds:
            return
        self._fitting += 1
        if self._fitting >= self._patience:
            self._fitting = 0
            self.seconds = min(self._full, self.seconds * _GROWTH)
