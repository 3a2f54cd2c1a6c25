"""Detokenizing a whole batch at once with array operations: from tokens to texts and words.

Meanwhile another thread of the same interpreter launches the GPU's next batch, and waits for the interpreter lock while
this one runs Python. A call for each word would leave the device idle (docs/performance.md at 4f03a9e).

Nearly all utterances are done this way. Those with byte pieces, unknown pieces or a space before a punctuation mark go
through ``timestamps.words`` one by one, which defines the result for all.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.search.result import FlatRows
from models.text.timestamps import lasts, words
from models.text.tokenizers import Vocabulary
from transcripts.transcript import FlatTranscripts, Transcript, Transcripts

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SPACE = " "
_CERTAIN = np.ones(1, np.float32)
_CODE_POINTS = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"
_WHITESPACE = re.compile(r"\s")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# Whether a tokenizer drops spaces at the beginning of a text.
_DROPS_FIRST_SPACES = {"sentencepiece": True, "bpe": True, "aggregate": True, "characters": False}


class Detokenizer:
    """Detokenizes results of searches."""

    def __init__(self, vocabulary: Vocabulary, seconds: Callable[[int], float], *, is_ctc: bool = False) -> None:
        """Prepare tables of the vocabulary.

        Args:
            vocabulary: the vocabulary of the tokens.
            seconds: turns a number of encoder frames into seconds.
            is_ctc: whether the tokens are those of CTC, whose words last longer than the run of their last token.
        """
        self._is_ctc = is_ctc
        self._vocabulary = vocabulary
        self._seconds = seconds
        self._seconds_of_frame = np.empty(0)

    def __call__(self, rows: FlatRows, lengths: Sequence[float] | None = None) -> Transcripts:
        """Detokenize a batch whose rows have frames and ends, and ``lengths`` in seconds."""
        lengths = [math.inf] * len(rows.counts) if lengths is None else lengths
        if not len(rows.tokens):
            return self.one_by_one(rows, lengths)
        pieces, tokens, bounds = self._pieces, rows.tokens.astype(np.int64), rows.bounds
        row = np.repeat(np.arange(len(rows.counts)), rows.counts)
        is_first = _differs(row)
        unusual = set(row[self._is_unusual(tokens, is_first)].tolist())
        whole = pieces.joined(tokens)
        begins = np.concatenate(([0], np.cumsum(pieces.characters[tokens])))  # each token's offset
        text_of = begins[bounds].tolist()
        raw = list(map(whole.__getitem__, map(slice, text_of, text_of[1:])))
        kind = self._vocabulary.kind
        texts = [text.lstrip(_SPACE) for text in raw] if _DROPS_FIRST_SPACES[kind] else raw
        found = self._words(rows, tokens, row, is_first, begins, np.array(lengths))
        of_word = row[found.first]  # its utterance
        characters = None
        if pieces.is_unspaced[tokens].any():
            # Offsets in ``whole``, less those of the utterance's text, which may have lost spaces.
            lost = np.array([len(text) - len(kept) for text, kept in zip(raw, texts, strict=True)])
            begin = begins[found.first] + pieces.leading_spaces[tokens[found.first]]
            characters = _whole(np.stack([begin, begins[found.last]]) - (begins[bounds[:-1]] + lost)[of_word])
        return FlatTranscripts(
            texts=[text.rstrip(_SPACE) for text in texts] if kind == "aggregate" else texts,
            token_bounds=_whole(bounds),
            tokens=_whole(rows.tokens),
            token_confidence=rows.confidence.tobytes(),
            frames=None if rows.frames is None else _whole(rows.frames),
            durations=None if rows.durations is None else _whole(rows.durations),
            word_bounds=_whole(of_word.searchsorted(np.arange(len(rows.counts) + 1))),
            word_times=found.start.tobytes() + found.end.tobytes(),
            word_confidence=found.confidence.tobytes(),
            word_tokens=_whole(found.first - bounds[of_word]) + _whole(found.last - bounds[of_word]),
            word_characters=characters,
            others={index: self._alone(rows, index, lengths[index]) for index in unusual},
        )

    def one_by_one(self, rows: FlatRows, lengths: Sequence[float] | None = None) -> list[Transcript]:
        """Detokenize utterances one by one, with the same result in ten times the time."""
        lengths = [math.inf] * len(rows.counts) if lengths is None else lengths
        return [self._alone(rows, index, length) for index, length in enumerate(lengths)]

    def _is_unusual(self, tokens: Numbers, is_first: Bools) -> Bools:
        """Return for each token whether its utterance must be detokenized alone."""
        pieces = self._pieces
        unusual = ~pieces.is_plain[tokens]
        unusual[1:] |= pieces.is_blank[tokens[:-1]] & pieces.begins_with_mark[tokens[1:]] & ~is_first[1:]
        return unusual

    def _words(
        self, rows: FlatRows, tokens: Numbers, row: Numbers, is_first: Bools, begins: Numbers, lengths: Floats
    ) -> "_Words":
        assert rows.frames is not None
        assert rows.ends is not None
        pieces, bounds, is_space = self._pieces, rows.bounds, self._pieces.is_space[tokens]
        # A word ends at a space, which belongs to no word, and where the next word begins.
        is_break = is_first | pieces.begins_word[tokens]
        is_break[1:] |= pieces.ends_word[tokens[:-1]] & pieces.begins_with_letter[tokens[1:]]
        breaks = np.flatnonzero(is_break)
        first, last = breaks + is_space[breaks], np.concatenate((breaks[1:], [len(tokens)]))
        first, last = first[first < last], last[first < last]
        # The first word of an utterance also has the spaces before it.
        start = np.where(_differs(row[first]), bounds[row[first]], first)
        is_more_than_a_space = begins[first] + pieces.leading_spaces[tokens[first]] < begins[last]
        first, last, start = first[is_more_than_a_space], last[is_more_than_a_space], start[is_more_than_a_space]
        ends = rows.ends
        # A punctuation mark is silent: the times are those of the token before it.
        is_mark = pieces.is_mark[tokens] & ~is_first
        spoken = np.maximum.accumulate(np.where(is_mark, 0, np.arange(len(tokens))))
        if rows.durations is not None:  # a TDT gives marks a duration
            ends = ends[spoken]
        slices = np.empty(2 * len(first), np.int64)
        slices[::2], slices[1::2] = first, last
        confidence = np.minimum.reduceat(np.concatenate((rows.confidence, _CERTAIN)), slices)[::2]
        seconds = self._seconds_up_to(int(rows.ends.max()))
        begin_seconds, end_seconds = seconds[rows.frames[start]], seconds[ends[last - 1]]
        length = lengths[row[first]]
        if self._is_ctc:
            until = length.copy()
            has_next = np.flatnonzero(~_differs(row[first])) - 1
            until[has_next] = begin_seconds[has_next + 1]
            token = np.maximum(spoken[last - 1], first)
            extended = seconds[rows.frames[token]] + pieces.lasts[tokens[token]]
            end_seconds = np.maximum(seconds[rows.ends[token]], np.minimum(extended, until))
        end_seconds = np.maximum(begin_seconds, np.minimum(end_seconds, length))
        return _Words(first, last, begin_seconds, end_seconds, confidence)

    def _alone(self, rows: FlatRows, index: int, length: float) -> Transcript:
        row = rows.row(index)
        found = words(row, self._vocabulary, self._seconds, is_ctc=self._is_ctc, length=length)
        return row.transcript(self._vocabulary.text(row.tokens), found)

    def _seconds_up_to(self, frame: int) -> npt.NDArray[np.float64]:
        """Return the second at which each encoder frame begins, at least up to ``frame``."""
        seconds = self._seconds_of_frame
        if len(seconds) <= frame:
            more = [self._seconds(each) for each in range(len(seconds), 2 * frame + 1)]
            self._seconds_of_frame = seconds = np.append(seconds, more)  # one assignment, as threads may share it
        return seconds

    @cached_property
    def _pieces(self) -> "_Pieces":
        return _Pieces.of(self._vocabulary)


def _differs(numbers: Numbers) -> Bools:
    """Return for each number whether it is the first, or another one than that before it."""
    differs = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=differs[1:])
    return differs


def _whole(numbers: npt.NDArray[np.integer]) -> bytes:
    return numbers.astype(np.int32, copy=False).tobytes()


class _Words(NamedTuple):
    """The words of a batch.

    Attributes:
        first: index of the first token of each, [words].
        last: index after the last token of each, [words].
        start: seconds, [words].
        end: seconds, [words].
        confidence: the lowest of its tokens, float32 [words].
    """

    first: Numbers
    last: Numbers
    start: Floats
    end: Floats
    confidence: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Properties of the pieces of a vocabulary, in arrays with an entry for each piece.

    Attributes:
        letters: the texts of all, one after the other, in code points.
        offsets: offset of each text in ``letters``.
        characters: length of each text.
        leading_spaces: spaces at the beginning of the text, before a word.
        begins_word: whether it begins a word, by a space or because of its script; or is a space.
        is_unspaced: whether it begins or ends a word without a space, because of its script.
        ends_word: whether it ends a word if a letter follows, because of its script.
        begins_with_letter: whether it begins with a letter or a number of a script with spaces.
        is_plain: whether its text is the same in any context, and has no space except before a word.
        is_space: whether it is a space between words, and part of none.
        is_blank: whether its text is one space.
        is_mark: whether it is a punctuation mark.
        begins_with_mark: whether it begins with a punctuation mark.
        lasts: seconds that it lasts from the beginning of its run in the output of CTC.
    """

    letters: npt.NDArray[np.uint32]
    offsets: Numbers
    characters: Numbers
    leading_spaces: Numbers
    begins_word: Bools
    is_unspaced: Bools
    ends_word: Bools
    begins_with_letter: Bools
    is_plain: Bools
    is_space: Bools
    is_blank: Bools
    is_mark: Bools
    begins_with_mark: Bools
    lasts: Floats

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "_Pieces":
        """Compute the properties of a vocabulary's pieces."""
        texts = tuple(one.decode(errors="replace") for one in vocabulary.token_bytes)
        shown, marks = vocabulary.texts, vocabulary.punctuation
        drops_spaces = _DROPS_FIRST_SPACES[vocabulary.kind]

        def is_plain(token: int) -> bool:
            text = texts[token]
            return (
                text != ""
                and vocabulary.tokenizer.token_bytes(token) == text.encode()  # no byte, and no mark after a space
                and not _BYTE.fullmatch(vocabulary.pieces[token])
                and not _WHITESPACE.search(text.removeprefix(_SPACE))
                and shown[token] == (text.lstrip(_SPACE) if drops_spaces else text)
            )

        def each(of: Callable[[int], bool]) -> Bools:
            return np.array([of(token) for token in range(len(texts))], np.bool_)

        anywhere = np.array(vocabulary.begin_words_anywhere, np.bool_)
        ends_word = np.array(vocabulary.end_words, np.bool_)
        is_space = each(lambda token: shown[token] == _SPACE)
        characters = np.array([len(text) for text in texts], np.int64)
        return cls(
            letters=np.frombuffer("".join(texts).encode(_CODE_POINTS), np.uint32),
            offsets=np.cumsum(characters) - characters,
            characters=characters,
            leading_spaces=np.array([text.startswith(_SPACE) for text in texts], np.int64),
            begins_word=np.array(vocabulary.begin_words, np.bool_) | anywhere | is_space,
            is_unspaced=anywhere | ends_word,
            ends_word=ends_word,
            begins_with_letter=np.array(vocabulary.begin_with_letters, np.bool_),
            is_plain=each(is_plain),
            is_space=is_space,
            is_blank=each(lambda token: texts[token] == _SPACE),
            is_mark=each(lambda token: shown[token] in marks),
            begins_with_mark=each(lambda token: texts[token][:1] in marks),
            lasts=np.array([lasts(len(text.strip())) for text in shown], np.float64),
        )

    def joined(self, tokens: Numbers) -> str:
        """Return the texts of tokens, one after the other."""
        counts = self.characters[tokens]
        # Of each character of the result, its index in the text of its token, and from there in ``letters``.
        shift = self.offsets[tokens] - (np.cumsum(counts) - counts)
        letters = self.letters[np.arange(counts.sum()) + np.repeat(shift, counts)]
        return str(letters.tobytes(), _CODE_POINTS)
