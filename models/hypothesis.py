"""What a model makes of an utterance."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A word and when it was said.

    Attributes:
        text: the word with its punctuation.
        start: seconds from the start of the utterance; None where the model does not say.
        end: seconds from the start of the utterance; None with ``start``.
        confidence: the lowest confidence of its tokens.
        token_span: the slice of the hypothesis' tokens that it is made of.
    """

    text: str
    start: float | None
    end: float | None
    confidence: float
    token_span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The transcript of an utterance; the lists but ``words`` have one entry a token.

    Attributes:
        text: the transcript.
        tokens: ids of the labels.
        frames: the encoder frame at which each token begins; None for an attention decoder, which does not know.
        durations: frames by which each token advanced a TDT; None for other decoders.
        token_confidence: probability of each token among labels and blank where it begins; of the simple measures of
            Laptev and Ginsburg (2022, arXiv 2212.08703) the maximum probability.
        words: the words in order.
    """

    text: str
    tokens: list[int]
    frames: list[int] | None
    durations: list[int] | None
    token_confidence: list[float]
    words: list[Word]
