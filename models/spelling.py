"""Detokenizing a whole batch at once with array operations: from tokens to texts and words.

Meanwhile another thread of the same interpreter launches the GPU's next batch, and waits for the interpreter lock while
this one runs Python. A call for each word would leave the device idle (docs/performance.md).

Nearly all utterances are done this way. Those with byte pieces, unknown pieces or a space before a punctuation mark go
through ``timestamps.words`` one by one, which defines the result for all.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np
import numpy.typing as npt

from models.search.result import FlatRows
from models.timestamps import lasts, words
from models.tokenizers import Vocabulary
from models.transcript import Transcript, Word

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SPACE = " "
_word = tuple.__new__  # of Word; its own constructor is written in Python, and takes three times as long
_WHITESPACE = re.compile(r"\s")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# Whether a tokenizer drops spaces at the beginning of a text. Other kinds are always detokenized one by one.
_DROPS_FIRST_SPACES = {"sentencepiece": True, "bpe": True, "aggregate": False, "characters": False}


class Speller:
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

    def __call__(self, rows: FlatRows, lengths: Sequence[float] | None = None) -> list[Transcript]:
        """Detokenize a batch whose rows have frames and ends; ``lengths`` in seconds are for CTC."""
        lengths = [math.inf] * len(rows.counts) if lengths is None else lengths
        if not len(rows.tokens):
            return self.one_by_one(rows, lengths)
        tokens, bounds = rows.tokens.astype(np.int64), rows.bounds
        row = np.repeat(np.arange(len(rows.counts)), rows.counts)
        is_first = np.diff(row, prepend=-1) > 0
        unusual = set(row[self._is_unusual(tokens, is_first)].tolist())
        ids, confidence = rows.tokens.tolist(), rows.confidence.tolist()
        whole = "".join(map(self._pieces.texts.__getitem__, ids))
        begins = np.concatenate(([0], np.cumsum(self._pieces.characters[tokens])))  # each token's offset
        columns, words_of = self._words(rows, tokens, row, is_first, begins, np.array(lengths))
        spans = columns[-1]
        frames = None if rows.frames is None else rows.frames.tolist()
        durations = None if rows.durations is None else rows.durations.tolist()
        tokens_of, text_of = bounds.tolist(), begins[bounds].tolist()
        is_unspaced = self._pieces.begins_word_anywhere[tokens] | self._pieces.ends_word[tokens]
        unspaced = set(row[is_unspaced].tolist())
        drops_spaces = _DROPS_FIRST_SPACES.get(self._vocabulary.kind)
        texts_of, said = [], []
        for index in range(len(rows.counts)):
            text = whole[text_of[index] : text_of[index + 1]]
            texts_of.append(text.lstrip(_SPACE) if drops_spaces else text)
            its_words = slice(words_of[index], words_of[index + 1])
            if index in unusual:  # its words are found otherwise
                said += [""] * (its_words.stop - its_words.start)
            elif index in unspaced:
                places = begins[bounds[index] + np.array(spans[its_words])] - text_of[index]
                said += [text[begin:end].strip() for begin, end in places.tolist()]
            else:
                said += text.split()
        found = list(map(_word, repeat(Word), zip(said, *columns, strict=True)))
        spelled = []
        for index, text in enumerate(texts_of):
            if index in unusual:
                spelled.append(self._alone(rows, index, lengths[index]))
                continue
            its = slice(tokens_of[index], tokens_of[index + 1])
            words_of_it = found[words_of[index] : words_of[index + 1]]
            its_frames, its_durations = frames and frames[its], durations and durations[its]
            spelled.append(Transcript(text, ids[its], confidence[its], words_of_it, its_frames, its_durations))
        return spelled

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
    ) -> tuple[tuple[list[float], list[float], list[float], list[tuple[int, int]]], list[int]]:
        """Return starts, ends, confidences and spans of all words, and the index of each utterance's first word."""
        assert rows.frames is not None
        assert rows.ends is not None
        pieces, bounds, is_space = self._pieces, rows.bounds, self._pieces.is_space[tokens]
        # A word ends at a space, which belongs to no word, and where the next word begins.
        is_break = is_first | is_space | pieces.begins_word[tokens] | pieces.begins_word_anywhere[tokens]
        is_break[1:] |= pieces.ends_word[tokens[:-1]] & pieces.begins_with_letter[tokens[1:]]
        breaks = np.flatnonzero(is_break)
        first, last = breaks + is_space[breaks], np.append(breaks[1:], len(tokens))
        first, last = first[first < last], last[first < last]
        # The first word of an utterance also has the spaces before it.
        start = np.where(np.diff(row[first], prepend=-1) > 0, bounds[row[first]], first)
        is_more_than_a_space = begins[first] + pieces.leading_spaces[tokens[first]] < begins[last]
        first, last, start = first[is_more_than_a_space], last[is_more_than_a_space], start[is_more_than_a_space]
        ends = rows.ends
        # A punctuation mark is silent: the times are those of the token before it.
        is_mark = pieces.is_mark[tokens] & ~is_first
        spoken = np.maximum.accumulate(np.where(is_mark, 0, np.arange(len(tokens))))
        if rows.durations is not None:  # a TDT gives marks a duration
            ends = ends[spoken]
        slices = np.stack([first, last], axis=1)
        confidence = np.minimum.reduceat(np.append(rows.confidence, np.float32(1)), slices.ravel())[::2]
        seconds = self._seconds_up_to(int(rows.ends.max()))
        spans = slices - bounds[row[first], None]
        begin_seconds, end_seconds = seconds[rows.frames[start]], seconds[ends[last - 1]]
        if self._is_ctc:
            is_last = np.diff(row[first], append=-1) != 0
            until = np.where(is_last, lengths[row[first]], np.append(begin_seconds[1:], np.inf))
            token = np.maximum(spoken[last - 1], first)
            heard = seconds[rows.frames[token]] + pieces.lasts[tokens[token]]
            end_seconds = np.maximum(seconds[rows.ends[token]], np.minimum(heard, until))
        columns = (
            begin_seconds.tolist(),
            end_seconds.tolist(),
            confidence.tolist(),
            list(zip(*spans.T.tolist(), strict=True)),
        )
        return columns, np.searchsorted(row[first], np.arange(len(rows.counts) + 1)).tolist()

    def _alone(self, rows: FlatRows, index: int, length: float) -> Transcript:
        """Detokenize any one utterance."""
        row = rows.row(index)
        found = words(row, self._vocabulary, self._seconds, is_ctc=self._is_ctc, length=length)
        return row.transcript(self._vocabulary.text(row.tokens), found)

    def _seconds_up_to(self, frame: int) -> npt.NDArray[np.float64]:
        """Return the second at which each encoder frame begins, at least up to ``frame``."""
        known = len(self._seconds_of_frame)
        if known <= frame:
            more = [self._seconds(each) for each in range(known, 2 * frame + 1)]
            self._seconds_of_frame = np.append(self._seconds_of_frame, more)
        return self._seconds_of_frame

    @cached_property
    def _pieces(self) -> "_Pieces":
        return _Pieces.of(self._vocabulary)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Properties of the pieces of a vocabulary, in arrays with an entry for each piece.

    Attributes:
        texts: the text of each.
        characters: length of the text.
        leading_spaces: spaces at the beginning of the text, before a word.
        begins_word: whether it begins a word.
        begins_word_anywhere: whether it begins a word even without a space before it, because of its script.
        ends_word: whether it ends a word if a letter follows, because of its script.
        begins_with_letter: whether it begins with a letter or a number of a script with spaces.
        is_plain: whether its text is the same in any context, and has no space except before a word.
        is_space: whether it is a space between words, and part of none.
        is_blank: whether its text is one space.
        is_mark: whether it is a punctuation mark.
        begins_with_mark: whether it begins with a punctuation mark.
        lasts: seconds that it goes on after its run in the output of CTC.
    """

    texts: tuple[str, ...]
    characters: Numbers
    leading_spaces: Numbers
    begins_word: Bools
    begins_word_anywhere: Bools
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
        texts = tuple(spelling.decode(errors="replace") for spelling in vocabulary.spellings)
        shown, marks = vocabulary.texts, vocabulary.punctuation
        drops_spaces = _DROPS_FIRST_SPACES.get(vocabulary.kind)

        def is_plain(token: int) -> bool:
            text = texts[token]
            return (
                drops_spaces is not None
                and text != ""
                and vocabulary.tokenizer.spell(token) == text.encode()  # no byte, and no mark after a space
                and not _BYTE.fullmatch(vocabulary.pieces[token])
                and not _WHITESPACE.search(text.removeprefix(_SPACE))
                and shown[token] == (text.lstrip(_SPACE) if drops_spaces else text)
            )

        def each(of: Callable[[int], bool]) -> Bools:
            return np.array([of(token) for token in range(len(texts))], np.bool_)

        return cls(
            texts=texts,
            characters=np.array([len(text) for text in texts], np.int64),
            leading_spaces=np.array([text.startswith(_SPACE) for text in texts], np.int64),
            begins_word=np.array(vocabulary.begin_words, np.bool_),
            begins_word_anywhere=np.array(vocabulary.begin_words_anywhere, np.bool_),
            ends_word=np.array(vocabulary.end_words, np.bool_),
            begins_with_letter=np.array(vocabulary.begin_with_letters, np.bool_),
            is_plain=each(is_plain),
            is_space=each(lambda token: shown[token] == _SPACE),
            is_blank=each(lambda token: texts[token] == _SPACE),
            is_mark=each(lambda token: shown[token] in marks),
            begins_with_mark=each(lambda token: texts[token][:1] in marks),
            lasts=np.array([lasts(len(text.strip())) for text in shown], np.float64),
        )
