"""File descriptors of Python files, for libraries that read by descriptor and for child processes."""

import fcntl
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

# Files up to this size are copied: an upload that is spooled in memory would move to the disk for its descriptor.
_BYTES_COPIED = 1 << 20


def unnamed_file() -> int:
    """Open an empty file without a name, in memory where the system can, and return its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("steno", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def sealed_file(size: int) -> int:
    """Open a file of ``size`` bytes as `unnamed_file` does, which no process that gets it can shrink or grow.

    A process that maps it would be killed by the system when it reads where the file has ended.
    """
    descriptor = unnamed_file()
    os.ftruncate(descriptor, size)
    if hasattr(os, "memfd_create"):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


class Copies:
    """A file in memory for copies of small uploads, one after another. Close it.

    Attributes:
        reading: a descriptor that only reads it, where the system can.
    """

    def __init__(self) -> None:
        self._writing = unnamed_file()
        try:
            self.reading = _only_reading(self._writing)
        except OSError:
            os.close(self._writing)
            raise
        # An MP3 is read 4 bytes, then a frame at a time: the system need not note when.
        with suppress(OSError, AttributeError):  # another system than Linux
            fcntl.fcntl(self.reading, fcntl.F_SETFL, os.O_NOATIME)
        self._size = 0

    def take(self, file: BinaryIO) -> bool:
        """Copy ``file`` in place of the one before, if it is small and in memory; return whether it was."""
        size = file.seek(0, os.SEEK_END)
        if size > _BYTES_COPIED or not isinstance(file, tempfile.SpooledTemporaryFile | io.BytesIO):
            return False
        file.seek(0)
        if size < self._size:
            os.ftruncate(self._writing, size)
        _write(self._writing, file)
        self._size = size
        return True

    def close(self) -> None:
        """Close it."""
        os.close(self.reading)
        os.close(self._writing)


def _only_reading(writable: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # another system than Linux, or the file of another user
        return os.dup(writable)


@contextmanager
def read_only(file: BinaryIO) -> Iterator[int]:
    """Yield a descriptor that only reads ``file`` or a copy, with a position of its own, where the system can.

    The position of ``file`` is undefined afterwards.
    """
    with descriptor_of(file) as writable:
        descriptor = _only_reading(writable)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def descriptor_of(file: BinaryIO) -> Iterator[int]:
    """Yield a descriptor at the start of ``file`` or of a copy. The position of ``file`` is undefined afterwards."""
    file.seek(0)
    if (descriptor := _descriptor_behind(file)) is not None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
        return
    descriptor = unnamed_file()
    try:
        _write(descriptor, file)  # by place, so it stays at the start
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, file: BinaryIO) -> None:
    """Copy a file, in few calls of the system, because each hands the interpreter lock to another thread."""
    offset = 0
    while block := file.read(_BYTES_COPIED):
        write_all(descriptor, memoryview(block), offset)
        offset += len(block)


def write_all(descriptor: int, what: memoryview, offset: int) -> None:
    """Write bytes at a place of a file, all of them; an OSError says why not."""
    while what:
        written = os.pwrite(descriptor, what, offset)
        what, offset = what[written:], offset + written


def _descriptor_behind(file: BinaryIO) -> int | None:
    file.flush()
    try:
        return file.fileno()
    except io.UnsupportedOperation:
        return None
