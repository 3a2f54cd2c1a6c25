"""Speech recognition models in plain PyTorch, loaded from published checkpoints.

A name is imported when it is first used, so that a process without a model can import transcripts and prompts without
loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.checkpoint import CheckpointError as CheckpointError
    from models.checkpoint.location import checkpoint_path as checkpoint_path
    from models.checkpoint.location import model_id as model_id
    from models.device.precision import Float16OverflowError as Float16OverflowError
    from models.device.precision import default_dtype as default_dtype
    from models.language_identifier import LanguageIdentifier as LanguageIdentifier
    from models.language_identifier import load_identifier as load_identifier
    from models.loading import load_model as load_model
    from models.recognition import Recognition as Recognition
    from models.transcriber import Transcriber as Transcriber
    from transcripts.prompt import Prompt as Prompt
    from transcripts.prompt import PromptError as PromptError
    from transcripts.transcript import Transcript as Transcript
    from transcripts.transcript import Word as Word

# Where the public names are.
MODULES = {
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


def __getattr__(name: str) -> object:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)
