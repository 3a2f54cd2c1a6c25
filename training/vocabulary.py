"""Vocabularies for training: the labels of a model, and the encoding of text."""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from models.text.tokenizers import CharacterTokenizer, SentencePieceTokenizer
from training.errors import RecipeError
from training.spelling import Spelling
from transcripts.prompt import DEFAULT_PROMPT, Prompt


class PieceVocabulary:
    """The pieces of a SentencePiece model.

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
        self._spelling = Spelling(self._processor)

    def encode(self, text: str, prompt: Prompt = DEFAULT_PROMPT) -> list[int]:  # noqa: ARG002  # one language
        """Return the labels of a transcript; letters and digits without a piece become the unknown one."""
        labels: list[int] = self._processor.encode(self._spelling.spelled(text)[0])
        return labels

    def spelled(self, text: str, prompt: Prompt = DEFAULT_PROMPT) -> tuple[str, set[str]]:  # noqa: ARG002
        """Return a transcript in the case of the pieces, without marks that have none; letters and digits without."""
        return self._spelling.spelled(text)

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

    def encode(self, text: str, prompt: Prompt = DEFAULT_PROMPT) -> list[int]:  # noqa: ARG002  # one language
        """Return the labels of a transcript."""
        return [self._labels[character] for character in self.spelled(text)[0]]

    def spelled(self, text: str, prompt: Prompt = DEFAULT_PROMPT) -> tuple[str, set[str]]:  # noqa: ARG002
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
