"""The speed of a run, and the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from training.run import Run


class Progress:
    """Makes lines of progress from the steps since the last line."""

    def __init__(self, run: Run, clock: Callable[[], float]) -> None:
        self._run = run
        self._clock = clock
        self._since = clock()
        self._steps = 0
        self._audio = 0.0
        self._loss = 0.0

    def after_step(self, audio_seconds: float, loss: float) -> None:
        """Add a step's audio and its loss."""
        self._steps += 1
        self._audio += audio_seconds
        self._loss += loss

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of the block out of the speed."""
        began = self._clock()
        try:
            yield
        finally:
            self._since += self._clock() - began

    def line(self, learning_rate: float) -> str:
        """Return a line with the mean loss and the speed since the last line, and the time left at that speed."""
        now = self._clock()
        elapsed = max(now - self._since, 1e-9)
        left = (self._run.recipe.steps - self._run.step) * elapsed / self._steps
        line = (
            f"step {self._run.step}/{self._run.recipe.steps}: loss {self._loss / self._steps:.3f}, "
            f"learning rate {learning_rate:.2e}, {self._audio / elapsed:.0f}x real time, "
            f"{self._run.audio_seconds / 3600:.2f} h of audio, {_duration(left)} left"
        )
        self._since, self._steps, self._audio, self._loss = now, 0, 0.0, 0.0
        return line


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
