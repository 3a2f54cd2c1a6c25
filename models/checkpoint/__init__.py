"""Reading published checkpoints, safely and strictly (docs/checkpoints.md)."""

from pathlib import Path

from models.checkpoint.checkpoint import Checkpoint, IdentifierCheckpoint
from models.checkpoint.nemo.file import read_nemo, read_nemo_identifier
from models.checkpoint.transformers.model_folder import read_transformers
from models.errors import CheckpointError, UnreadableCheckpointError

__all__ = ["Checkpoint", "CheckpointError", "IdentifierCheckpoint", "read_checkpoint", "read_identifier"]


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read the checkpoint at ``path``: a ``.nemo`` file, or a folder that transformers wrote.

    Raises:
        CheckpointError: if it cannot be loaded; the message is one line that says why.
    """
    path = Path(path)
    return read_transformers(path) if path.is_dir() else read_nemo(path)


def read_identifier(path: str | Path) -> IdentifierCheckpoint:
    """Read the language identifier at ``path``, a ``.nemo`` file.

    Raises:
        CheckpointError: if it cannot be loaded; the message is one line that says why.
    """
    path = Path(path)
    if path.is_dir():
        raise UnreadableCheckpointError(f"{path} has no .nemo file, which a language identifier is")
    return read_nemo_identifier(path)
