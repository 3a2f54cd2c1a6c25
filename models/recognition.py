"""The result of a batch: tokens that the device has found or is still finding, to be detokenized on the host."""

from collections.abc import Callable

from models.search.result import FetchedResult, FlatRows
from transcripts.transcript import Transcript, Transcripts

Detokenize = Callable[[FlatRows], Transcripts]


class Recognition:
    """The result of a batch, before it is detokenized. Any thread may use it, while the device computes the next."""

    def __init__(self, fetched: FetchedResult, detokenize: Detokenize) -> None:
        """Take a search result; ``detokenize`` runs on the host."""
        self._fetched = fetched
        self._detokenize = detokenize

    def wait(self) -> None:
        """Wait until the device is done with the batch; raise RuntimeError if the device failed."""
        self._fetched.wait()

    def transcripts(self) -> list[Transcript]:
        """Wait, and return the transcript of each utterance."""
        return list(self.detokenized())

    def detokenized(self) -> Transcripts:
        """Wait, and return the transcript of each utterance, in arrays where that is possible."""
        return self._detokenize(self._fetched.flat_rows())

    def checked(self, check: Callable[[FlatRows], None]) -> "Recognition":
        """Return a copy whose tokens are checked before they are detokenized."""

        def detokenize(rows: FlatRows) -> Transcripts:
            check(rows)
            return self._detokenize(rows)

        return Recognition(self._fetched, detokenize)

    def with_transcripts(self, transcripts: list[Transcript]) -> "Recognition":
        """Return a copy with these transcripts instead of its own."""
        return Recognition(self._fetched, lambda _: transcripts)
