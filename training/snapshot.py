"""The saved state of a run, from which it continues as if it had never stopped.

Augmentation and dropout follow from the seed, the epoch and the step, so no state of a random generator is needed:
weights, optimizer, average, loss scale and a few counters are the whole state.
"""

import errno
import pickle
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from models.device.memory import is_out_of_memory
from training.errors import ResumeError, TrainingError
from training.replaced import replaced

# Its file in the run's folder.
STATE = "state.pt"
# What a damaged file may raise.
_DAMAGED = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_snapshot(path: Path, state: Mapping[str, Any]) -> None:
    """Replace the file at ``path`` atomically: a process that is killed while writing leaves the old state.

    Raises:
        TrainingError: if it cannot be written; the old state, if any, is still there.
    """
    try:
        with replaced(path) as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:
                # Of a full disk, torch raises an error of its own while it handles the one that names the reason.
                raise error.__context__ or error from error
    except OSError as error:
        kept = "; the state before it is kept" if path.exists() else ""
        raise TrainingError(f"{path} cannot be written: {error.strerror}{kept}") from error


def read_snapshot(path: Path, device: torch.device) -> dict[str, Any]:
    """Read the state at ``path``, its tensors onto ``device``.

    Raises:
        ResumeError: if there is no state, or it is damaged or cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch.load does not compare checksums
        if damaged is not None:
            raise ResumeError(f"{path} is damaged (the checksum of {damaged}); move it away to begin anew")
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError as error:
        raise ResumeError(f"there is no run to resume at {path.parent}") from error
    except _DAMAGED as error:
        if reason := _unreadable(error):
            raise ResumeError(f"{path} cannot be read: {reason}") from error
        raise ResumeError(f"{path} is damaged; move it away to begin anew") from error
    return state


def _unreadable(error: Exception) -> str | None:
    """Return why a file cannot be read that may be intact; None if it is damaged."""
    # Where a damaged archive gives a place before its beginning, seeking there is an invalid argument.
    if isinstance(error, OSError) and error.errno != errno.EINVAL:
        return error.strerror
    return "out of memory" if is_out_of_memory(error) else None


def check_identity(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Check that the state in the file at ``path`` has the identity of the run.

    Raises:
        ResumeError: if it is not; the message names what differs.
    """
    different = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    if different:
        raise ResumeError(f"{path} is of a run with other values of {', '.join(different)}; --out names another folder")
