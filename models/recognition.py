"""A batch whose tokens are found, or will be without the host."""

from collections.abc import Callable, Sequence

from models.hypothesis import Hypothesis, TimedText
from models.search.result import FetchedResult, FlatRows

Spell = Callable[[FlatRows], Sequence[TimedText]]


class Recognition:
    """What becomes the hypotheses of a batch. Any thread may use it, while the device has the next batch."""

    def __init__(self, fetched: FetchedResult, spell: Spell) -> None:
        """Take what was found, or will be; ``spell`` makes texts of it on the host."""
        self._fetched = fetched
        self._spell = spell

    def wait(self) -> None:
        """Wait until the device is done with the batch.

        Raises:
            RuntimeError: if anything failed there.
        """
        self._fetched.wait()

    def timed_texts(self) -> Sequence[TimedText]:
        """Wait, and return what each utterance says, in columns."""
        return self._spell(self._fetched.flat_rows())

    def hypotheses(self) -> list[Hypothesis]:
        """Wait, and return the hypothesis of each utterance."""
        return [text.hypothesis() for text in self.timed_texts()]
