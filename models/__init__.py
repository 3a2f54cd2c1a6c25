"""Speech recognition models in plain PyTorch, loaded from published checkpoints."""

from models.checkpoint import CheckpointError
from models.checkpoint.location import checkpoint_path, model_id
from models.hypothesis import Hypothesis, TimedText, Word
from models.model import Model, load_model
from models.precision import default_dtype
from models.prompts import Prompt, PromptError
from models.recognition import Recognition

__all__ = [
    "CheckpointError",
    "Hypothesis",
    "Model",
    "Prompt",
    "PromptError",
    "Recognition",
    "TimedText",
    "Word",
    "checkpoint_path",
    "default_dtype",
    "load_model",
    "model_id",
]
