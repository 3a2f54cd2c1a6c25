"""Word error rate after Whisper's English normaliser (Radford et al., 2022), as leaderboards count it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add

from cli.errors import CommandError


@dataclass(frozen=True, slots=True)
class Score:
    """Errors over some clips: words substituted, deleted or inserted, of the words of the references."""

    errors: int = 0
    words: int = 0
    clips: int = 0
    seconds: float = 0.0

    def __add__(self, other: Score) -> Score:
        return Score(*map(add, astuple(self), astuple(other)))

    @property
    def wer(self) -> float | None:
        """Errors per word of the references, a fraction; None without words."""
        return self.errors / self.words if self.words else None


class Scorer:
    """Compares transcripts with references; a CommandError says which package of the ``eval`` extra is missing."""

    def __init__(self) -> None:
        try:
            import jiwer
            from whisper_normalizer.english import EnglishTextNormalizer
        except ModuleNotFoundError as error:
            raise CommandError(f"{error.name} is not installed; it comes with: pip install 'steno[eval]'") from error

        self._align = jiwer.process_words
        self._normalise = EnglishTextNormalizer()

    def score(self, reference: str, transcript: str, seconds: float) -> Score:
        """Return the score of one clip, whose audio lasts ``seconds``."""
        alignment = self._align(self._normalise(reference), self._normalise(transcript))
        missed = alignment.substitutions + alignment.deletions
        return Score(errors=missed + alignment.insertions, words=missed + alignment.hits, clips=1, seconds=seconds)
