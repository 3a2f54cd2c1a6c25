"""The transcript of an utterance or a recording, from the detokenizer to the answer of the service.

Named tuples, which MessagePack writes as arrays: a process sends them to another as they are. The transcripts of a
batch are sent as arrays of bytes instead (``FlatTranscripts``), because a batch may have ten thousand tokens, and an
object for each would take milliseconds. Nothing here needs torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

_word = tuple.__new__  # of Word; its own constructor is written in Python, and takes three times as long


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


@dataclass(frozen=True, slots=True)
class FlatTranscripts:
    """The transcripts of a batch, token after token and word after word; iterating makes a transcript of each.

    Numbers are bytes in the order of this machine, which MessagePack copies as they are.
    """

    texts: list[str]  # the text of each utterance
    token_bounds: bytes  # index of each utterance's first token, and the end of the last, int32 [utterances + 1]
    tokens: bytes  # int32 [tokens of all]; this and the next three as in ``Transcript``
    token_confidence: bytes  # float32 [tokens of all]
    frames: bytes | None  # int32 [tokens of all], or None
    durations: bytes | None  # int32 [tokens of all], or None
    word_bounds: bytes  # index of each utterance's first word, and the end of the last, int32 [utterances + 1]
    word_times: bytes  # start and end of each word, float64 [2, words of all]
    word_confidence: bytes  # float32 [words of all]
    word_tokens: bytes  # first token and end of each word, counted in its utterance, int32 [2, words of all]
    # First character and end of each word in the text of its utterance, int32 [2, words of all]; None if words are what
    # spaces separate.
    word_characters: bytes | None
    # Transcripts that the arrays cannot hold, by index of the utterance; they replace what is in the arrays.
    others: dict[int, Transcript] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of utterances."""
        return len(self.texts)

    def __iter__(self) -> Iterator[Transcript]:
        """Yield the transcript of each utterance."""
        token_bounds, word_bounds = _whole(self.token_bounds), _whole(self.word_bounds)
        tokens, confidence = _whole(self.tokens), np.frombuffer(self.token_confidence, np.float32).tolist()
        frames = None if self.frames is None else _whole(self.frames)
        durations = None if self.durations is None else _whole(self.durations)
        starts, ends = np.frombuffer(self.word_times).reshape(2, -1).tolist()
        certain = np.frombuffer(self.word_confidence, np.float32).tolist()
        spans = zip(*_pairs(self.word_tokens), strict=True)
        fields = zip(self._words(word_bounds), starts, ends, certain, spans, strict=True)
        words = list(map(_word, repeat(Word), fields))
        for index, text in enumerate(self.texts):
            if index in self.others:
                yield self.others[index]
                continue
            its = slice(token_bounds[index], token_bounds[index + 1])
            words_of_it = words[word_bounds[index] : word_bounds[index + 1]]
            its_frames, its_durations = frames and frames[its], durations and durations[its]
            yield Transcript(text, tokens[its], confidence[its], words_of_it, its_frames, its_durations)

    def _words(self, bounds: Sequence[int]) -> list[str]:
        """Return the texts of the words of all; "" for those of ``others``."""
        words: list[str] = []
        places = None if self.word_characters is None else list(zip(*_pairs(self.word_characters), strict=True))
        for index, text in enumerate(self.texts):
            if index in self.others:
                words += [""] * (bounds[index + 1] - bounds[index])
            elif places is None:
                words += text.split()
            else:
                words += [text[begin:end] for begin, end in places[bounds[index] : bounds[index + 1]]]
        return words


Transcripts = list[Transcript] | FlatTranscripts


def _whole(numbers: bytes) -> list[int]:
    whole: list[int] = np.frombuffer(numbers, np.int32).tolist()
    return whole


def _pairs(numbers: bytes) -> list[list[int]]:
    pairs: list[list[int]] = np.frombuffer(numbers, np.int32).reshape(2, -1).tolist()
    return pairs
