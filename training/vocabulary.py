"""Vocabularies for training: the labels of a model, and the encoding of text."""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from models.text.tokenizers import CharacterTokenizer, SentencePieceTokenizer
from training.errors import RecipeError

_APOSTROPHES = "'\u2019\u02bc\u2018`"


class PieceVocabulary:
    """The pieces of a SentencePiece model.

    Texts are put into the case in which the pieces have their letters, and lose marks without a piece. A released model
    with lower-case pieces and a corpus in capitals are a common pair. Each capital would become the unknown piece, and
    training on these would wreck the model.

    Attributes:
        model: content of the SentencePiece model's file.
        tokenizer: from labels to text.
        size: number of labels, which is the id of the blank.
    """

    def __init__(self, model: bytes) -> None:
        """Parse a SentencePiece model.

        Raises:
            ValueError: if ``model`` is not one.
        """
        self.model = model
        self.tokenizer = SentencePieceTokenizer(model)
        self.size = len(self.tokenizer.pieces)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        spelled = "".join(
            piece
            for label, piece in enumerate(self.tokenizer.pieces)
            if not (self._processor.is_unknown(label) or self._processor.is_control(label))
            and not piece.startswith("<|")  # of prompts
        )
        self._is_lower, self._is_upper = spelled == spelled.lower(), spelled == spelled.upper()
        self._known: dict[str, bool] = {" ": True}

    def encode(self, text: str) -> list[int]:
        """Return the labels of a transcript; letters and digits without a piece become the unknown one."""
        labels: list[int] = self._processor.encode(self.spelled(text)[0])
        return labels

    def spelled(self, text: str) -> tuple[str, set[str]]:
        """Return a transcript in the case of the pieces, and its letters and digits that have none.

        Marks without a piece are left out, or a space between two letters.
        """
        text = self._cased(text)
        lacked = {character for character in text if not (self._knows(character) or character.isalnum())}
        for mark in lacked:
            instead = " "
            if mark in _APOSTROPHES:
                instead = "'" if self._knows("'") else ""
            text = text.replace(mark, instead)
        return " ".join(text.split()) if lacked else text, self._unknown_letters(text)

    def _cased(self, text: str) -> str:
        """Return a text in the case of the pieces or, if they have both, in the one in which they have all letters."""
        if self._is_lower or self._is_upper:
            return text.lower() if self._is_lower else text.upper()
        if self._unknown_letters(text):
            for cased in (text.lower(), text.upper()):
                if not self._unknown_letters(cased):
                    return cased
        return text

    def _unknown_letters(self, text: str) -> set[str]:
        return {character for character in text if not self._knows(character) and character.isalnum()}

    def _knows(self, character: str) -> bool:
        known = self._known.get(character)
        if known is None:
            known = self._known[character] = self._processor.unk_id() not in self._processor.encode(character)
        return known

    @property
    def scores(self) -> str:
        """The content of SentencePiece's file of pieces and scores."""
        pieces = enumerate(self.tokenizer.pieces)
        return "".join(f"{piece}\t{self._processor.get_score(label):g}\n" for label, piece in pieces)


class CharacterVocabulary:
    """A label for each character. Texts are put into the case of the labels, and characters without one left out.

    Attributes:
        tokenizer: from labels to text.
        size: number of labels, which is the id of the blank.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.tokenizer = CharacterTokenizer(labels)
        self.size = len(labels)
        self._labels = {label: number for number, label in enumerate(labels)}
        spelled = "".join(labels)
        self._is_lower, self._is_upper = spelled == spelled.lower(), spelled == spelled.upper()

    def encode(self, text: str) -> list[int]:
        """Return the labels of a transcript."""
        return [self._labels[character] for character in self.spelled(text)[0]]

    def spelled(self, text: str) -> tuple[str, set[str]]:
        """Return a transcript in the case of the labels; its characters without a label are left out, letters named."""
        text = text.lower() if self._is_lower else text.upper() if self._is_upper else text
        without = set(text) - self._labels.keys()
        return "".join(one for one in text if one not in without), {one for one in without if one.isalnum()}


def new_vocabulary(sentences: Iterable[str], size: int, **options: Any) -> bytes:  # noqa: ANN401  # SentencePiece's
    """Train a SentencePiece unigram model (Kudo, 2018) on sentences, and return it.

    Args:
        sentences: the sentences; characters are not normalised.
        size: number of pieces, with the unknown one.
        options: other options of SentencePiece.

    Raises:
        RecipeError: if the sentences do not give ``size`` pieces, or have more different characters than that.
    """
    model, characters = io.BytesIO(), {" "}

    def read() -> Iterator[str]:
        for sentence in sentences:
            characters.update(sentence)
            yield sentence

    usual: dict[str, Any] = {"model_type": "unigram", "character_coverage": 1.0, "normalization_rule_name": "identity"}
    usual |= {"bos_id": -1, "eos_id": -1, "minloglevel": 2}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=read(),
            model_writer=model,
            vocab_size=size,
            num_threads=1,  # more threads change the order of sums
            **usual | options,
        )
    except RuntimeError as error:
        reason = "that is more pieces than the sentences give"
        if size <= len(characters):
            reason = f"the unknown piece and a piece for each character are {len(characters) + 1}"
        raise RecipeError(f"no vocabulary of {size}: {reason}") from error
    return model.getvalue()
