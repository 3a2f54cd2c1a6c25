"""The labels that a model is trained on: the pieces of a SentencePiece model, and how text is cut into them."""

import io
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from models.checkpoint.archive import open_archive
from models.checkpoint.document import parse_document
from models.checkpoint.errors import CheckpointError
from models.checkpoint.nemo import CONFIG_FILE, MAX_CONFIG_BYTES, MAX_TOKENIZER_BYTES
from models.checkpoint.nemo_config import parse_nemo_config
from models.tokenizers import SentencePieceTokenizer
from training.errors import RecipeError


class TrainingVocabulary:
    """Subwords in both directions.

    Attributes:
        model: the SentencePiece model, as its file has it.
        tokenizer: from labels to text.
        size: labels; the blank, which is none of them, has this number.
        unknown: the label of what has no other, if there is one.
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
        self.unknown: int | None = self._processor.unk_id()

    def encode(self, text: str) -> list[int]:
        """Return the labels of a transcript; characters without a piece become the unknown one."""
        labels: list[int] = self._processor.encode(text)
        return labels

    @property
    def scores(self) -> str:
        """The pieces and their scores as SentencePiece writes them beside a model, for those who want such a file."""
        pieces = enumerate(self.tokenizer.pieces)
        return "".join(f"{piece}\t{self._processor.get_score(label):g}\n" for label, piece in pieces)


def read_vocabulary(path: Path) -> TrainingVocabulary:
    """Read the vocabulary at ``path``, a SentencePiece model or a ``.nemo`` checkpoint.

    Raises:
        RecipeError: if it cannot be read, or is of another kind.
    """
    try:
        return TrainingVocabulary(_from_checkpoint(path) if path.suffix == ".nemo" else path.read_bytes())
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror or error}") from error
    except CheckpointError as error:
        raise RecipeError(str(error)) from error
    except ValueError as error:
        raise RecipeError(f"{path} is not a SentencePiece model, and not a .nemo checkpoint") from error


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


def _from_checkpoint(path: Path) -> bytes:
    with open_archive(path) as archive:
        document = parse_document(archive.read(CONFIG_FILE, MAX_CONFIG_BYTES), f"{path}: {CONFIG_FILE}")
        model = parse_nemo_config(document)
        if len(model.tokenizer_files) != 1 or model.word_pieces:
            raise RecipeError(f"{path} has labels of another kind, and not those of one SentencePiece model")
        return archive.read(model.tokenizer_files[0], MAX_TOKENIZER_BYTES)
