"""NeMo's configuration and files of a vocabulary."""

from typing import Any

from training.attention_vocabulary import TrainingVocabulary
from training.vocabulary import CharacterVocabulary, PieceVocabulary

_TOKENIZERS = "nemo.collections.common.tokenizers.canary_tokenizer"


def tokenizer_section(vocabulary: TrainingVocabulary) -> dict[str, Any]:
    """Return the section that names the files of a vocabulary; none for characters, which the decoder lists."""
    if isinstance(vocabulary, CharacterVocabulary):
        return {}
    if isinstance(vocabulary, PieceVocabulary):
        return {"tokenizer": {"dir": None, **_named("")}}
    if len(vocabulary.parts) == 1:
        custom = {"_target_": f"{_TOKENIZERS}.CanaryBPETokenizer"}
        return {"tokenizer": {"dir": None, **_named(""), "custom_tokenizer": custom}}
    section = {
        "dir": None,
        "type": "agg",
        "langs": {name: {"dir": name, **_named(f"{name}_")} for name in vocabulary.parts},
        "custom_tokenizer": {"_target_": f"{_TOKENIZERS}.CanaryTokenizer", "tokenizers": None},
    }
    return {"tokenizer": section}


def tokenizer_files(vocabulary: TrainingVocabulary) -> dict[str, bytes]:
    """Return the files of a vocabulary by name: each SentencePiece model, its pieces, and their scores."""
    if isinstance(vocabulary, CharacterVocabulary):
        return {}
    parts = {"": vocabulary} if isinstance(vocabulary, PieceVocabulary) else vocabulary.parts
    files: dict[str, bytes] = {}
    for name, part in parts.items():
        prefix = "" if len(parts) == 1 else f"{name}_"
        pieces = "".join(piece + "\n" for piece in part.tokenizer.pieces)
        files[f"{prefix}tokenizer.model"] = part.model
        files[f"{prefix}vocab.txt"] = pieces.encode()
        files[f"{prefix}tokenizer.vocab"] = part.scores.encode()
    return files


def _named(prefix: str) -> dict[str, Any]:
    return {
        "type": "bpe",
        "model_path": f"nemo:{prefix}tokenizer.model",
        "vocab_path": f"nemo:{prefix}vocab.txt",
        "spe_tokenizer_vocab": f"nemo:{prefix}tokenizer.vocab",
    }
