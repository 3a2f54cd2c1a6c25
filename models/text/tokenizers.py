"""Vocabularies: from token ids to text."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Protocol, runtime_checkable

import sentencepiece

from transcripts.languages import NAMES
from transcripts.scripts import begins_unspaced, is_unspaced
from transcripts.spoken_language import language_of_label

WORD_START = "▁"

# Special pieces, and pieces that begin or continue a word: they are no punctuation marks.
_NOT_PUNCTUATION = re.compile(r"<.*>|\[.*\]|##.*|▁.*", re.DOTALL)

# Pieces of prompts, and of a model's output that is not text.
# Pieces of models for streams: the language of what was said, the end of an utterance, and that of a backchannel.
_TAG = re.compile(r"<[a-z]{2,3}-[A-Z]{2}>|<EOU>|<EOB>")
_SPECIAL = re.compile(r"<\|.*\|>|<pad>", re.DOTALL)
_FRAME = re.compile(r"<\|(\d{1,5})\|>", re.ASCII)
# A piece for a single byte, such as <0xE2>.
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# Python's surrogates for bytes that are not UTF-8 (errors="surrogateescape"), one character for each.
_NO_UTF8 = re.compile("[\udc80-\udcff]")


class Tokenizer(Protocol):
    """A vocabulary of pieces, numbered from 0; the blank is not one of them."""

    kind: str
    pieces: tuple[str, ...]

    def join(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens, without further rules."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Return the text of a token in UTF-8; part of a character for a byte piece."""
        ...


@runtime_checkable
class PromptTokenizer(Tokenizer, Protocol):
    """A vocabulary that has special pieces for prompts."""

    def encode_prompt(self, pieces: Sequence[str]) -> list[int]:
        """Return the ids of special pieces in a row, as in the model's training."""
        ...


class SentencePieceTokenizer:
    """Subwords of a SentencePiece model (Kudo and Richardson, 2018)."""

    kind = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        """Parse a model.

        Raises:
            ValueError: if ``model`` is not a SentencePiece model.
        """
        if not model:
            raise ValueError("an empty SentencePiece model")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            size = self._processor.get_piece_size()
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model: {error}") from error
        if size == 0:
            raise ValueError("a SentencePiece model without pieces")
        self.pieces = tuple(self._processor.id_to_piece(list(range(size))))

    def join(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens: bytes merged, control pieces dropped, unknown ones shown."""
        text: str = self._processor.decode_pieces([self.pieces[token] for token in tokens])
        return text

    def token_bytes(self, token: int) -> bytes:
        """Return the piece with a space for each ``▁``, the byte of a byte piece, or nothing for a control piece."""
        piece = self.pieces[token]
        if self.is_byte(token):
            return bytes([int(piece[3:5], 16)])  # <0xE2>
        if self._processor.is_control(token):
            return b""
        if self._processor.is_unknown(token):
            return self.join([token]).encode()
        return piece.replace(WORD_START, " ").encode()

    def is_byte(self, token: int) -> bool:
        """Return whether a token is a byte of a character that has no piece."""
        byte: bool = self._processor.is_byte(token)
        return byte

    def encode(self, text: str) -> list[int] | None:
        """Return the ids of a text's pieces; None if a part of it has no piece."""
        ids: list[int] = self._processor.encode(text)
        return None if any(map(self._processor.is_unknown, ids)) else ids

    def encode_prompt(self, pieces: Sequence[str]) -> list[int]:
        """Encode the pieces as one text, which a model may let begin with a space."""
        ids: list[int] = self._processor.encode("".join(pieces))
        return ids


class AggregateTokenizer:
    """SentencePiece models one after the other: special pieces, then a vocabulary for each language."""

    kind = "aggregate"

    def __init__(self, parts: Sequence[SentencePieceTokenizer], names: Sequence[str] = ()) -> None:
        """Put models together; ``names`` are their labels of languages, such as "en" or "en-US", if they have any."""
        self._parts = tuple(parts)
        self._names = tuple(names)
        self._ends = tuple(accumulate(len(part.pieces) for part in parts))
        self.pieces = tuple(piece for part in parts for piece in part.pieces)

    @property
    def parts(self) -> list[range]:
        """The tokens of each model."""
        return [range(end - len(part.pieces), end) for part, end in zip(self._parts, self._ends, strict=True)]

    @property
    def languages(self) -> dict[int, str]:
        """The language of each token whose model is named after one, by ISO 639-1 code."""
        codes = [language_of_label(name) for name in self._names]
        of_parts = zip(self.parts, codes, strict=False)  # without names, nothing
        return {token: code for part, code in of_parts if code in NAMES for token in part}

    def join(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens: bytes merged, the space before the first word kept.

        NeMo shows the names of bytes in place of a character.
        """
        return b"".join(map(self.token_bytes, tokens)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the piece with a space for each ``▁``, or the byte of a byte piece."""
        index = bisect_right(self._ends, token)
        own = token - self._ends[index] + len(self._parts[index].pieces)
        if self._parts[index].is_byte(own):
            return self._parts[index].token_bytes(own)
        return self.pieces[token].replace(WORD_START, " ").encode()

    def encode_prompt(self, pieces: Sequence[str]) -> list[int]:
        """Look up the pieces; special ones come first."""
        return [self.pieces.index(piece) for piece in pieces]


class ByteFallbackTokenizer:
    """Subwords of a ``tokenizer.json``, with byte pieces for characters that have no piece.

    Texts are those of a SentencePiece model with the same pieces, except that special pieces, among them the unknown
    one, never show.
    """

    kind = "bpe"

    def __init__(self, pieces: Sequence[str], special: Collection[int]) -> None:
        """Take the pieces, and the ids of special ones, which have no text."""
        self.pieces = tuple(pieces)
        self._special = frozenset(special)

    def join(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens: bytes merged, special pieces dropped, no space before the first word."""
        shown = [token for token in tokens if token not in self._special]
        first = next((place for place, token in enumerate(shown) if self.pieces[token] != WORD_START), len(shown))
        marks = first + (first < len(shown) and self.pieces[shown[first]].startswith(WORD_START))
        text = b"".join(map(self.token_bytes, shown)).decode(errors="surrogateescape")
        return _NO_UTF8.sub("\N{REPLACEMENT CHARACTER}", text[marks:])

    def token_bytes(self, token: int) -> bytes:
        """Return the piece with a space for each ``▁``, the byte of a byte piece, or nothing for a special piece."""
        if token in self._special:
            return b""
        piece = self.pieces[token]
        if _BYTE.fullmatch(piece):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(WORD_START, " ").encode()

    def encode_prompt(self, pieces: Sequence[str]) -> list[int]:
        """Look up the pieces; each is a token in any context."""
        return [self.pieces.index(piece) for piece in pieces]


class CharacterTokenizer:
    """Labels that are pieces of text, usually single characters."""

    kind = "characters"

    def __init__(self, labels: Sequence[str]) -> None:
        self.pieces = tuple(labels)

    def join(self, tokens: Sequence[int]) -> str:
        """Return the labels one after the other."""
        return "".join(self.pieces[token] for token in tokens)

    def token_bytes(self, token: int) -> bytes:
        """Return the label."""
        return self.pieces[token].encode()


class Vocabulary:
    """A tokenizer, and properties of its pieces by NeMo's rules."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.kind = tokenizer.kind
        self.pieces = tokenizer.pieces

    @property
    def parts(self) -> Sequence[range]:
        """The tokens of each vocabulary of an aggregate; all tokens of any other."""
        if isinstance(self.tokenizer, AggregateTokenizer):
            return self.tokenizer.parts
        return [range(len(self.pieces))]

    @cached_property
    def tags(self) -> frozenset[int]:
        """The tokens that say something about the text, its language or its end, and are no part of it."""
        return frozenset(token for token, piece in enumerate(self.pieces) if _TAG.fullmatch(piece))

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The text of each token in UTF-8, empty for tags; joined, they are the transcript with spaces before it."""
        marks = tuple(f" {mark}".encode() for mark in self.punctuation)
        tokens = range(len(self.pieces))
        texts = (b"" if token in self.tags else self.tokenizer.token_bytes(token) for token in tokens)
        return tuple(text[1:] if text.startswith(marks) else text for text in texts)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The transcript of each token alone."""
        return tuple(self.text([token]) for token in range(len(self.pieces)))

    @cached_property
    def begin_words(self) -> tuple[bool, ...]:
        """Whether each token begins a word: its text differs from its piece, which has the mark of a word's start."""
        return tuple(piece != text for piece, text in zip(self.pieces, self.texts, strict=True))

    @cached_property
    def begin_words_anywhere(self) -> tuple[bool, ...]:
        """Whether each token begins a word even without a space before it, because of its script."""
        return tuple(map(begins_unspaced, self.texts))

    @cached_property
    def end_words(self) -> tuple[bool, ...]:
        """Whether each token ends a word if a letter follows, because of its script."""
        return tuple(text != "" and is_unspaced(text[-1]) for text in self.texts)

    @cached_property
    def begin_with_letters(self) -> tuple[bool, ...]:
        """Whether each token begins with a letter or a number of a script with spaces."""
        return tuple(text[:1].isalnum() and not is_unspaced(text[0]) for text in self.texts)

    @cached_property
    def punctuation(self) -> frozenset[str]:
        """The punctuation marks that the model can write."""
        return frozenset(
            character
            for piece in self.pieces
            if not _NOT_PUNCTUATION.fullmatch(piece)
            for character in piece
            if unicodedata.category(character).startswith("P")
        )

    @cached_property
    def _space_before_punctuation(self) -> re.Pattern[str]:
        marks = "".join(map(re.escape, sorted(self.punctuation)))
        return re.compile(rf"\s(?=[{marks}])" if marks else r"(?!)")

    def text(self, tokens: Sequence[int]) -> str:
        """Return the transcript: the tokens joined, without tags and without a space before a punctuation mark."""
        if self.tags.isdisjoint(tokens):
            text = self._space_before_punctuation.sub("", self.tokenizer.join(tokens))
            return text.strip(" ") if self.kind == AggregateTokenizer.kind else text  # NeMo keeps the first space
        return self.text([token for token in tokens if token not in self.tags]).strip()


class PromptedVocabulary(Vocabulary):
    """The vocabulary of an attention decoder, in which special pieces have no text.

    Spaces before punctuation stay, as in NeMo for these models: French has them.
    """

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The text of each token in UTF-8; empty if it is special."""
        texts = map(self.tokenizer.token_bytes, range(len(self.pieces)))
        return tuple(b"" if _SPECIAL.fullmatch(piece) else text for piece, text in zip(self.pieces, texts, strict=True))

    def text(self, tokens: Sequence[int]) -> str:
        """Return the transcript: the text of the tokens that are not special, without space around it."""
        return self.tokenizer.join([token for token in tokens if not _SPECIAL.fullmatch(self.pieces[token])]).strip()

    def frame(self, token: int) -> int | None:
        """Return the encoder frame that a special piece names, or None."""
        match = _FRAME.fullmatch(self.pieces[token])
        return int(match[1]) if match else None
