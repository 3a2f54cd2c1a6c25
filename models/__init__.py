"""Speech recognition models in plain PyTorch, loaded from published checkpoints."""

from models.bundled import checkpoint_path
from models.checkpoint import CheckpointError
from models.hypothesis import Hypothesis, Word
from models.model import Model, load_model

__all__ = ["CheckpointError", "Hypothesis", "Model", "Word", "checkpoint_path", "load_model"]
