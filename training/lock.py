"""A lock, so that only one process writes into the folder of a run."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.errors import TrainingError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a run's folder. The lock ends with the block or the process, however that ends.

    Raises:
        TrainingError: if another process holds the lock, or the folder cannot be written.
    """
    path = folder / "lock"
    try:
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise TrainingError(f"{path} cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            for unfinished in folder.glob("*.new"):
                unfinished.unlink()  # a process that was killed was writing it
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read().decode(errors="replace").strip()
            raise TrainingError(f"{folder} is in use by another run" + f" (process {owner})" * bool(owner)) from error
        except OSError as error:
            raise TrainingError(f"{path} cannot be written: {error.strerror}") from error
        yield
