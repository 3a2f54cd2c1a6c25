"""The result of a batch: tokens that the device has found or is still finding, to be detokenized on the host."""

from collections.abc import Callable, Sequence

from models.hypothesis import Hypothesis, TimedText
from models.search.result import FetchedResult, FlatRows

Spell = Callable[[FlatRows], Sequence[TimedText]]


class Recognition:
    """The result of a batch, before it is detokenized. Any thread may use it, while the device computes the next."""

    def __init__(self, fetched: FetchedResult, spell: Spell) -> None:
        """Take a search result; ``spell`` detokenizes it on the host."""
        self._fetched = fetched
        self._spell = spell

    def wait(self) -> None:
        """Wait until the device is done with the batch.

        Raises:
            RuntimeError: if the device failed.
        """
        self._fetched.wait()

    def timed_texts(self) -> Sequence[TimedText]:
        """Wait, and return the hypothesis of each utterance, its words in columns."""
        return self._spell(self._fetched.flat_rows())

    def with_texts(self, texts: Sequence[TimedText]) -> "Recognition":
        """Return the same with other texts, which are known."""
        return Recognition(self._fetched, lambda _: texts)

    def hypotheses(self) -> list[Hypothesis]:
        """Wait, and return the hypothesis of each utterance."""
        return [text.hypothesis() for text in self.timed_texts()]
