"""Speech recognition models in plain PyTorch, loaded from published checkpoints.

A name is imported when it is first used, so that a process without a model can import transcripts and prompts without
loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.checkpoint import CheckpointError
    from models.checkpoint.location import checkpoint_path, model_id
    from models.device.precision import Float16OverflowError, default_dtype
    from models.language_identifier import LanguageIdentifier, load_identifier
    from models.loading import load_model
    from models.recognition import Recognition
    from models.transcriber import Transcriber
    from transcripts.prompt import Prompt, PromptError
    from transcripts.transcript import Transcript, Word

_MODULES = {
    "CheckpointError": "models.checkpoint",
    "Float16OverflowError": "models.device.precision",
    "LanguageIdentifier": "models.language_identifier",
    "Prompt": "transcripts.prompt",
    "PromptError": "transcripts.prompt",
    "Recognition": "models.recognition",
    "Transcriber": "models.transcriber",
    "Transcript": "transcripts.transcript",
    "Word": "transcripts.transcript",
    "checkpoint_path": "models.checkpoint.location",
    "default_dtype": "models.device.precision",
    "load_identifier": "models.language_identifier",
    "load_model": "models.loading",
    "model_id": "models.checkpoint.location",
}

__all__ = [
    "CheckpointError",
    "Float16OverflowError",
    "LanguageIdentifier",
    "Prompt",
    "PromptError",
    "Recognition",
    "Transcriber",
    "Transcript",
    "Word",
    "checkpoint_path",
    "default_dtype",
    "load_identifier",
    "load_model",
    "model_id",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
