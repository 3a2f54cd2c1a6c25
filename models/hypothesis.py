"""The transcript of an utterance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from models.search.result import UtteranceTokens


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its times.

    Attributes:
        text: the word with its punctuation.
        start: seconds from the start of the utterance; None if the model does not tell.
        end: seconds from the start of the utterance; None with ``start``.
        confidence: the lowest confidence of its tokens.
        token_span: the slice of the hypothesis' tokens that form the word.
    """

    text: str
    start: float | None
    end: float | None
    confidence: float
    token_span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The transcript of an utterance; all lists except ``words`` have one entry for each token.

    Attributes:
        text: the transcript.
        tokens: ids of the labels.
        frames: the encoder frame at which each token begins; None for an attention decoder, which does not tell.
        durations: frames by which each token advanced a TDT; None for other decoders.
        token_confidence: probability of each token among labels and blank at its first frame, the maximum probability
            of Laptev and Ginsburg (2022, arXiv 2212.08703).
        words: the words in order.
    """

    text: str
    tokens: list[int]
    frames: list[int] | None
    durations: list[int] | None
    token_confidence: list[float]
    words: list[Word]


class TimedText(NamedTuple):
    """A hypothesis with its words in columns, because objects for the thousands of words of a batch take too long.

    Attributes:
        text, tokens, frames, durations, token_confidence: see ``Hypothesis``.
        words: texts of the words.
        starts, ends, confidence, token_spans: fields of the words; see ``Word``.
    """

    text: str
    tokens: list[int]
    frames: list[int] | None
    durations: list[int] | None
    token_confidence: list[float]
    words: list[str]
    starts: Sequence[float | None]
    ends: Sequence[float | None]
    confidence: list[float]
    token_spans: list[tuple[int, int]]

    @classmethod
    def of(cls, text: str, row: UtteranceTokens, words: Sequence[Word]) -> "TimedText":
        """Return the text and the words of a row in columns."""
        return cls(
            text,
            row.tokens,
            row.frames,
            row.durations,
            row.confidence,
            [word.text for word in words],
            [word.start for word in words],
            [word.end for word in words],
            [word.confidence for word in words],
            [word.token_span for word in words],
        )

    def hypothesis(self) -> Hypothesis:
        """Return it as a hypothesis."""
        columns = self.words, self.starts, self.ends, self.confidence, self.token_spans
        words = [Word(*word) for word in zip(*columns, strict=True)]
        return Hypothesis(self.text, self.tokens, self.frames, self.durations, self.token_confidence, words)
