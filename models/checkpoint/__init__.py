"""Reading published checkpoints, safely and strictly (docs/checkpoints.md)."""

from pathlib import Path

from models.checkpoint.checkpoint import Checkpoint
from models.checkpoint.errors import CheckpointError
from models.checkpoint.nemo.file import read_nemo
from models.checkpoint.transformers.model_folder import read_transformers

__all__ = ["Checkpoint", "CheckpointError", "read_checkpoint"]


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read the checkpoint at ``path``: a ``.nemo`` file, or a folder that transformers wrote.

    Raises:
        CheckpointError: if it cannot be loaded; the message is one line that says why.
    """
    path = Path(path)
    return read_transformers(path) if path.is_dir() else read_nemo(path)
