"""The transcript of an utterance or a recording: the same from the search to the answer of the service.

Named tuples, which MessagePack writes as arrays: a process sends them to another as they are. Nothing here needs torch.
"""

from typing import Any, NamedTuple


class Word(NamedTuple):
    """A word and its times.

    Attributes:
        text: the word with its punctuation.
        start: seconds from the start of the utterance or recording; None if the model does not give times.
        end: seconds from the start of the utterance or recording; None with ``start``.
        confidence: the lowest confidence of its tokens; None for a word that has no tokens.
        token_span: the slice of the transcript's tokens that makes up the word.
    """

    text: str
    start: float | None
    end: float | None
    confidence: float | None
    token_span: tuple[int, int]


class Transcript(NamedTuple):
    """A transcript; all lists except ``words`` have one entry for each token.

    Attributes:
        text: the text.
        tokens: ids of the labels.
        token_confidence: probability of each token among labels and blank where it begins; of the simple measures of
            Laptev and Ginsburg (2022, arXiv 2212.08703) the maximum probability.
        words: the words in order.
        frames: the encoder frame at which each token begins; None for an attention decoder.
        durations: the frames by which each token of a TDT advanced; None for other decoders.
    """

    text: str
    tokens: list[int]
    token_confidence: list[float]
    words: list[Word]
    frames: list[int] | None = None
    durations: list[int] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, also those of each word."""
        return self._asdict() | {"words": [word._asdict() for word in self.words]}
