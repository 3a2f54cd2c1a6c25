"""The labels that a model is trained on, and how text is cut into them."""

import io
from collections.abc import Sequence
from typing import Protocol

import sentencepiece

from models.prompts import Prompt
from models.tokenizers import CharacterTokenizer, SentencePieceTokenizer, Tokenizer
from training.errors import RecipeError

_ENGLISH = Prompt()


class TrainingVocabulary(Protocol):
    """Labels in both directions.

    Attributes:
        size: labels; the blank, which is none of them, has this number.
    """

    size: int

    @property
    def tokenizer(self) -> Tokenizer:
        """From labels to text."""
        ...

    def encode(self, text: str, prompt: Prompt = _ENGLISH) -> list[int]:
        """Return the labels of a transcript, in the language that a prompt asks for where there are several."""
        ...

    def lacks(self, text: str, prompt: Prompt = _ENGLISH) -> bool:
        """Tell whether a transcript has characters without a label."""
        ...


class PieceVocabulary:
    """The pieces of a SentencePiece model.

    Attributes:
        model: the SentencePiece model, as its file has it.
        tokenizer: from labels to text.
        size: labels; the blank, which is none of them, has this number.
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

    def encode(self, text: str, prompt: Prompt = _ENGLISH) -> list[int]:  # noqa: ARG002  # one language
        """Return the labels of a transcript; characters without a piece become the unknown one."""
        labels: list[int] = self._processor.encode(text)
        return labels

    def lacks(self, text: str, prompt: Prompt = _ENGLISH) -> bool:  # noqa: ARG002  # one language
        """Tell whether a transcript has characters without a piece."""
        return self._processor.unk_id() in self.encode(text)

    @property
    def scores(self) -> str:
        """The pieces and their scores as SentencePiece writes them beside a model, for those who want such a file."""
        pieces = enumerate(self.tokenizer.pieces)
        return "".join(f"{piece}\t{self._processor.get_score(label):g}\n" for label, piece in pieces)


class CharacterVocabulary:
    """One label a character. A text is spelled in the case of the labels, and what has no label is left out.

    Attributes:
        tokenizer: from labels to text.
        size: labels; the blank, which is none of them, has this number.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.tokenizer = CharacterTokenizer(labels)
        self.size = len(labels)
        self._labels = {label: number for number, label in enumerate(labels)}
        spelled = "".join(labels)
        self._is_lower, self._is_upper = spelled == spelled.lower(), spelled == spelled.upper()

    def encode(self, text: str, prompt: Prompt = _ENGLISH) -> list[int]:  # noqa: ARG002  # one language
        """Return the labels of a transcript."""
        return [self._labels[character] for character in self._spelled(text) if character in self._labels]

    def lacks(self, text: str, prompt: Prompt = _ENGLISH) -> bool:  # noqa: ARG002  # one language
        """Tell whether a transcript has characters without a label."""
        return any(character not in self._labels for character in self._spelled(text))

    def _spelled(self, text: str) -> str:
        return text.lower() if self._is_lower else text.upper() if self._is_upper else text


def new_vocabulary(sentences: Sequence[str], size: int) -> bytes:
    """Return a SentencePiece model of the unigram kind (Kudo, 2018), made for sentences.

    Args:
        sentences: what to cut into pieces; their characters are taken as they are.
        size: pieces, the unknown one among them.

    Raises:
        RecipeError: if the sentences do not give so many pieces, or hold too many characters for so few.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            normalization_rule_name="identity",
            character_coverage=1.0,
            bos_id=-1,
            eos_id=-1,
            num_threads=1,  # more of them add in another order
            minloglevel=2,
        )
    except RuntimeError as error:
        raise RecipeError(f"no vocabulary of {size}: {' '.join(str(error).split())}") from error
    return model.getvalue()
