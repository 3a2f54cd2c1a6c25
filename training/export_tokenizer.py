"""NeMo's configuration and files of a vocabulary."""

from typing import Any

from training.attention_vocabulary import AttentionVocabulary, TrainingVocabulary
from training.vocabulary import PieceVocabulary

_TOKENIZERS = "nemo.collections.common.tokenizers.canary_tokenizer"


def tokenizer_section(vocabulary: TrainingVocabulary) -> dict[str, Any] | None:
    """Return the section that names the files of a vocabulary; None for characters, which the decoder lists."""
    if isinstance(vocabulary, PieceVocabulary):
        return {"dir": None, **_named("")}
    if not isinstance(vocabulary, AttentionVocabulary):
        return None
    if len(vocabulary.parts) == 1:
        custom = {"_target_": f"{_TOKENIZERS}.CanaryBPETokenizer"}
        return {"dir": None, **_named(""), "custom_tokenizer": custom}
    return {
        "dir": None,
        "type": "agg",
        "langs": {name: {"dir": name, **_named(f"{name}_")} for name in vocabulary.parts},
        "custom_tokenizer": {"_target_": f"{_TOKENIZERS}.CanaryTokenizer", "tokenizers": None},
    }


def tokenizer_files(vocabulary: TrainingVocabulary) -> dict[str, bytes]:
    """Return the files of a vocabulary by name: each SentencePiece model, its pieces, and their scores."""
    if isinstance(vocabulary, PieceVocabulary):
        return _files("", vocabulary)
    if not isinstance(vocabulary, AttentionVocabulary):
        return {}
    prefixes = [""] if len(vocabulary.parts) == 1 else [f"{name}_" for name in vocabulary.parts]
    files: dict[str, bytes] = {}
    for prefix, part in zip(prefixes, vocabulary.parts.values(), strict=True):
        files |= _files(prefix, part)
    return files


def _named(prefix: str) -> dict[str, Any]:
    return {
        "type": "bpe",
        "model_path": f"nemo:{prefix}tokenizer.model",
        "vocab_path": f"nemo:{prefix}vocab.txt",
        "spe_tokenizer_vocab": f"nemo:{prefix}tokenizer.vocab",
    }


def _files(prefix: str, vocabulary: PieceVocabulary) -> dict[str, bytes]:
    pieces = "".join(piece + "\n" for piece in vocabulary.tokenizer.pieces)
    return {
        f"{prefix}tokenizer.model": vocabulary.model,
        f"{prefix}vocab.txt": pieces.encode(),
        f"{prefix}tokenizer.vocab": vocabulary.scores.encode(),
    }
