"""Descriptors of files, for libraries that read by themselves and for other processes."""

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

# What is no larger is copied, whatever it is: an upload that is spooled in memory would move to the disk.
_BYTES_COPIED = 1 << 20


def unnamed_file() -> int:
    """Open an empty file without a name, in memory where the system can, and return its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("steno", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@contextmanager
def descriptor_of(file: BinaryIO) -> Iterator[int]:
    """Yield a descriptor of ``file``, or of a copy, that stands at its start; where ``file`` stands then is open."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size > _BYTES_COPIED and (descriptor := _descriptor_behind(file)) is not None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
        return
    with open(unnamed_file(), "r+b") as copy:
        shutil.copyfileobj(file, copy, _BYTES_COPIED)
        copy.seek(0)
        yield copy.fileno()


def _descriptor_behind(file: BinaryIO) -> int | None:
    file.flush()
    try:
        return file.fileno()
    except io.UnsupportedOperation:
        return None
