"""Replacing a file at once: who reads it finds the old content or all of the new."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` when the block ends; if it fails, nothing is left behind.

    Raises:
        OSError: if it cannot be written; what was there stays.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        with fresh.open("wb", buffering=2**20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
