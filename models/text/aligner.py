"""Forced alignment: a CTC model finds the times of words that another model wrote.

Attention decoders do not know the frames of their words. Some Canary checkpoints therefore contain a CTC model, and for
others one can be named. Words are encoded in pieces of its vocabulary; their times are those of the pieces in the
likeliest CTC path through the frames.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from models.search.ctc_alignment import ctc_alignment
from models.search.result import UtteranceTokens
from models.text.phrases import Pieces, divisions
from models.text.timestamps import lasts
from models.text.tokenizers import SentencePieceTokenizer, Vocabulary

Span = tuple[float | None, float | None]

_WORDS_KEPT = 2**14


@dataclass(frozen=True, slots=True)
class KnownWords:
    """The words to find in an utterance.

    Attributes:
        words: words of the text, in order.
        log_probabilities: those of the CTC model, [frames, labels + 1], float32.
        seconds: length of the utterance.
    """

    words: Sequence[str]
    log_probabilities: Tensor
    seconds: float


class Aligner:
    """Finds words in the frames of a CTC model.

    Args:
        vocabulary: vocabulary of the CTC model.
        blank: its blank.
        seconds: turns a number of its frames into seconds.

    Attributes:
        encode: returns the pieces of a word; results are kept.
    """

    def __init__(self, vocabulary: Vocabulary, blank: int, seconds: Callable[[int], float]) -> None:
        self._vocabulary = vocabulary
        self._blank = blank
        self._seconds = seconds
        self.encode = lru_cache(_WORDS_KEPT)(self._find_pieces)

    def times(self, utterances: Iterable[KnownWords]) -> list[list[Span]]:
        """Return the start and end of the words of each utterance, in seconds.

        A word that the vocabulary cannot encode gets the time between its neighbours. The words of a text that needs
        more frames than there are have no times.
        """
        encoded, columns, tokens = [], [], []
        for utterance in utterances:
            pieces = [self.encode(word) for word in utterance.words]
            if pieces and pieces[0] and self._is_space(pieces[0][0]):
                pieces[0] = pieces[0][1:]  # no word is before it
            flat = list(chain.from_iterable(pieces))
            if len(flat) + sum(left == right for left, right in pairwise(flat)) > len(utterance.log_probabilities):
                pieces, flat = [], []
            # Only labels of the text are kept, in columns after that of the blank.
            numbers = {token: number for number, token in enumerate(dict.fromkeys(flat), 1)}
            columns.append(utterance.log_probabilities[:, [self._blank, *numbers]].cpu())
            tokens.append(torch.tensor([numbers[token] for token in flat], dtype=torch.int64))
            encoded.append((utterance, pieces))
        return [
            self._spans(*pair, row) if pair[1] else [(None, None)] * len(pair[0].words)
            for pair, row in zip(encoded, _aligned(columns, tokens), strict=True)
        ]

    def _spans(self, utterance: KnownWords, pieces: Sequence[Sequence[int]], row: UtteranceTokens) -> list[Span]:
        """Return the times of words, whose pieces are the tokens of ``row``."""
        assert row.frames is not None
        assert row.ends is not None
        starts: list[float | None] = []
        ends: list[float | None] = []
        first = 0
        for word in pieces:
            # Punctuation marks are not spoken, and a label for the space between words belongs to no word.
            spoken = [index for index, token in enumerate(word, first) if self._is_spoken(token)]
            start, end = None, None
            if spoken:
                start, last = self._seconds(row.frames[spoken[0]]), spoken[-1]
                letters = len(self._vocabulary.texts[word[last - first]].strip())
                end = max(self._seconds(row.frames[last]) + lasts(letters), self._seconds(row.ends[last]))
            starts.append(start)
            ends.append(end)
            first += len(word)
        return _complete(starts, ends, utterance.seconds)

    def _is_spoken(self, token: int) -> bool:
        return not self._is_space(token) and self._vocabulary.texts[token].strip() not in self._vocabulary.punctuation

    def _is_space(self, token: int) -> bool:
        return self._vocabulary.texts[token] == " "

    def _find_pieces(self, word: str) -> list[int]:
        """Return the pieces of a word as written, or in lower case, or without its marks, or of its known letters."""
        for text in (word, word.lower(), _letters(word), _letters(word).lower()):
            tokens = self._pieces_of(text)
            if tokens:
                return tokens
        known = "".join(letter for letter in _letters(word).lower() if self._pieces_of(letter))
        return self._pieces_of(known) or []

    def _pieces_of(self, text: str) -> list[int] | None:
        """Return the pieces of a word; None if a part of it has none."""
        tokenizer = self._vocabulary.tokenizer
        if isinstance(tokenizer, SentencePieceTokenizer):
            return tokenizer.encode(text)
        ways = divisions(f" {text}".encode(), self._pieces) or divisions(text.encode(), self._pieces)
        return list(ways[0]) if ways else None

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces({piece: token for token, piece in enumerate(self._vocabulary.token_bytes) if piece})


def _letters(word: str) -> str:
    return "".join(character for character in word if character.isalnum() or character == "'")


def _complete(starts: Sequence[float | None], ends: Sequence[float | None], seconds: float) -> list[Span]:
    """Return the times of words: none lasts into the next; one without times gets the time between its neighbours."""
    spans: list[Span] = []
    before = 0.0
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        until = next((following for following in starts[index + 1 :] if following is not None), seconds)
        first = before if start is None else start
        before = max(first, until if end is None else min(end, until))
        spans.append((first, before))
    return spans


def _aligned(columns: Sequence[Tensor], tokens: Sequence[Tensor]) -> Iterator[UtteranceTokens]:
    """Align a batch on the host, because the steps are many and small; the first of each row's columns is the blank."""
    widest = max((row.size(1) for row in columns), default=0)
    log_probabilities = pad_sequence([pad(row, (0, widest - row.size(1))) for row in columns], batch_first=True)
    frames, counts = (torch.tensor([len(row) for row in rows]) for rows in (columns, tokens))
    found = ctc_alignment(log_probabilities, frames, 0, pad_sequence(list(tokens), batch_first=True), counts)
    rows = found.fetched().flat_rows()
    return (rows.row(index) for index in range(len(columns)))
