"""The identity of a checkpoint, from sizes and times of its files, to notice that it was replaced."""

from pathlib import Path


def identity(checkpoint: Path) -> str:
    """Return a text that changes when any file of the checkpoint is written again.

    Raises:
        OSError: if it does not exist.
    """
    files = sorted(checkpoint.iterdir()) if checkpoint.is_dir() else [checkpoint]
    return " ".join(_state(file) for file in files)


def _state(file: Path) -> str:
    state = file.stat()
    return f"{file.name}:{state.st_size}:{state.st_mtime_ns}"
