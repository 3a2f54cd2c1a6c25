"""Speech recognition models in plain PyTorch, loaded from published checkpoints."""

from models.bundled import checkpoint_path
from models.checkpoint import CheckpointError
from models.hypothesis import Hypothesis, Word
from models.model import Model, load_model
from models.prompts import Prompt, PromptError

__all__ = ["CheckpointError", "Hypothesis", "Model", "Prompt", "PromptError", "Word", "checkpoint_path", "load_model"]
