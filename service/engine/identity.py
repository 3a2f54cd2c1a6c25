"""What tells whether a checkpoint is still the one that was loaded: sizes and times of its files."""

from pathlib import Path


def identity(checkpoint: Path) -> str:
    """Return what changes when a file of a checkpoint, or the file that it is, is written again.

    Raises:
        OSError: if it is not there.
    """
    files = sorted(checkpoint.iterdir()) if checkpoint.is_dir() else [checkpoint]
    return " ".join(_state(file) for file in files)


def _state(file: Path) -> str:
    state = file.stat()
    return f"{file.name}:{state.st_size}:{state.st_mtime_ns}"
