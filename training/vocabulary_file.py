"""Reading the labels that a recipe names, from a SentencePiece model or a checkpoint."""

from pathlib import Path

from models.checkpoint.document import parse_document
from models.checkpoint.nemo.archive import Archive, open_archive
from models.checkpoint.nemo.config import NemoModel, parse_nemo_config
from models.checkpoint.nemo.file import ALIGNER_CONFIG_FILE, CONFIG_FILE, MAX_CONFIG_BYTES, MAX_TOKENIZER_BYTES
from models.errors import CheckpointError
from training.attention_vocabulary import SPECIAL, AttentionVocabulary, TrainingVocabulary, vocabulary_of_languages
from training.errors import RecipeError
from training.recipe_shapes import Language
from training.vocabulary import CharacterVocabulary, PieceVocabulary


def read_vocabulary(path: Path) -> TrainingVocabulary:
    """Read the vocabulary at ``path``, a SentencePiece model or a ``.nemo`` checkpoint.

    Raises:
        RecipeError: if it cannot be read, or is of another kind.
    """
    try:
        if path.is_dir():  # such as a checkpoint that transformers wrote, which has no SentencePiece model
            raise RecipeError(f"{path} is a folder, and not a SentencePiece model or a .nemo checkpoint", "vocabulary")
        return _from_checkpoint(path) if path.suffix == ".nemo" else PieceVocabulary(path.read_bytes())
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror or error}", "vocabulary") from error
    except CheckpointError as error:
        raise RecipeError(str(error), "vocabulary") from error
    except ValueError as error:
        raise RecipeError(f"{path} is not a SentencePiece model, and not a .nemo checkpoint", "vocabulary") from error


def read_languages(languages: tuple[Language, ...]) -> AttentionVocabulary:
    """Read the vocabularies of an attention decoder's languages.

    Raises:
        RecipeError: if one cannot be read, is of another kind, or is listed twice.
    """
    models: dict[str, bytes] = {}
    for language in languages:
        try:
            vocabulary = read_vocabulary(language.vocabulary)
        except RecipeError as error:
            raise RecipeError(str(error), "languages") from error
        if not isinstance(vocabulary, PieceVocabulary):
            raise RecipeError(f"{language.vocabulary} is not a SentencePiece model", "languages")
        if language.code in models:
            raise RecipeError(f"languages has {language.code} twice", "languages")
        models[language.code] = vocabulary.model
    return vocabulary_of_languages(models)


def _from_checkpoint(path: Path) -> TrainingVocabulary:
    with open_archive(path) as archive:
        document = parse_document(archive.read(CONFIG_FILE, MAX_CONFIG_BYTES), f"{path}: {CONFIG_FILE}")
        model = parse_nemo_config(document, has_aligner=ALIGNER_CONFIG_FILE in archive)
        if model.config.prompts:
            return _prompted(archive, document, model)
        if not model.tokenizer_files:
            return CharacterVocabulary(model.labels)
        if len(model.tokenizer_files) != 1:
            raise RecipeError(
                f"{path} has labels of another kind, and not those of one SentencePiece model", "vocabulary"
            )
        return PieceVocabulary(archive.read(model.tokenizer_files[0], MAX_TOKENIZER_BYTES))


def _prompted(archive: Archive, document: dict[str, dict[str, object]], model: NemoModel) -> AttentionVocabulary:
    """Return the vocabulary of an attention decoder, its parts by name."""
    assert model.config.prompts
    languages = document["tokenizer"].get("langs")
    names = list(languages) if isinstance(languages, dict) and len(model.tokenizer_files) > 1 else [SPECIAL]
    files = [archive.read(name, MAX_TOKENIZER_BYTES) for name in model.tokenizer_files]
    return AttentionVocabulary(dict(zip(names, files, strict=True)), model.config.prompts)
