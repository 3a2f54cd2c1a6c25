"""Reading a ``.nemo`` archive, a tar file that may be gzipped, without unpacking it and without trusting it."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from models.checkpoint.errors import (
    CheckpointError,
    MissingCheckpointError,
    UnreadableCheckpointError,
    UnsafeCheckpointError,
    shown,
)

MAX_MEMBERS = 1000
MAX_UNPACKED_BYTES = 32 * 2**30
# Trained weights hardly compress, and nothing else in a checkpoint is large.
MAX_COMPRESSION = 32
# A tar header is 512 bytes; one with long names a few thousand.
MAX_HEADER_BYTES = 64 * 2**10

_GZIP_MAGIC = b"\x1f\x8b"
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
_DAMAGE = (tarfile.TarError, OSError, EOFError, OverflowError, zlib.error)


class Archive:
    """The files of an open archive, by base name."""

    def __init__(self, path: Path, tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo]) -> None:
        self.path = path
        self._tar = tar
        self._members = members

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a whole file.

        Raises:
            UnreadableCheckpointError: if there is no such file, or it is damaged.
            UnsafeCheckpointError: if it is larger than ``max_bytes``.
        """
        stream, size = self.open(name)
        if size > max_bytes:
            raise UnsafeCheckpointError(f"{self.path}: {shown(name)} has {size} bytes; at most {max_bytes} are read")
        try:
            content = stream.read(size)
        except _DAMAGE as error:
            raise UnreadableCheckpointError(f"{self.path}: {shown(name)} is damaged: {error}") from error
        if len(content) < size:
            raise UnreadableCheckpointError(f"{self.path}: {shown(name)} is cut short")
        return content

    def open(self, name: str) -> tuple[IO[bytes], int]:
        """Return a file as a seekable stream, and its size in bytes.

        Raises:
            UnreadableCheckpointError: if there is no such file.
        """
        member = self._members.get(name)
        if member is None:
            raise UnreadableCheckpointError(f"{self.path} has no file {shown(name)}")
        stream = self._tar.extractfile(member)
        assert stream is not None, "folders and links are not members"
        return stream, member.size


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive after looking at every header in it.

    Raises:
        MissingCheckpointError: if there is no such file.
        UnreadableCheckpointError: if it is no tar file, or is damaged.
        UnsafeCheckpointError: if a member is anything but a file or a folder, would land outside the archive, or
            shares its name with another; if there are too many; or if they unpack to too much.
    """
    if not path.exists():
        raise MissingCheckpointError(f"there is no checkpoint at {path}")
    if not path.is_file():
        raise UnreadableCheckpointError(f"{path} is not a file; a checkpoint is a .nemo file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise UnreadableCheckpointError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        stream = _bounded(file, path)
        tar, members = _scan(stream, path)
        stream.max_read = None
        with tar:
            yield Archive(path, tar, members)


class _Source(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, position: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


class _BoundedStream:
    """A stream that refuses to go past a position, or to be read in larger pieces than ``max_read``."""

    def __init__(self, source: _Source, path: Path, end: int) -> None:
        self.max_read: int | None = MAX_HEADER_BYTES
        self._source = source
        self._path = path
        self._end = end

    def read(self, size: int = -1) -> bytes:
        if self.max_read is not None and not 0 <= size <= self.max_read:
            raise UnsafeCheckpointError(f"{self._path} has a header of {size} bytes")
        data = self._source.read(size)
        self._check(self._source.tell())
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        assert whence == 0, "tarfile seeks from the start"
        self._check(position)
        return self._source.seek(position)

    def tell(self) -> int:
        return self._source.tell()

    def seekable(self) -> bool:
        return True

    def _check(self, position: int) -> None:
        if position > self._end:
            raise UnsafeCheckpointError(f"{self._path} unpacks to more than {self._end} bytes")


def _bounded(file: IO[bytes], path: Path) -> _BoundedStream:
    compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    if not compressed:
        return _BoundedStream(file, path, MAX_UNPACKED_BYTES)
    end = min(MAX_UNPACKED_BYTES, MAX_COMPRESSION * path.stat().st_size)
    return _BoundedStream(gzip.GzipFile(fileobj=file), path, end)


def _scan(stream: _BoundedStream, path: Path) -> tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]:
    """Return the open tar file and its files by base name, every header of it looked at."""
    members: dict[str, tarfile.TarInfo] = {}
    try:
        tar = tarfile.TarFile(fileobj=stream)  # type: ignore[arg-type]  # it reads, seeks and tells, as tarfile needs
        for member in tar:
            _refuse_unsafe(member, members, path)
            if member.isfile():
                members[PurePosixPath(member.name).name] = member
    except CheckpointError:
        raise
    except (*_DAMAGE, ValueError) as error:
        raise UnreadableCheckpointError(f"{path} is not a readable .nemo archive: {error}") from error
    return tar, members


def _refuse_unsafe(member: tarfile.TarInfo, before: dict[str, tarfile.TarInfo], path: Path) -> None:
    name = PurePosixPath(member.name)
    if member.type not in _PLAIN_TYPES or member.issparse():
        raise UnsafeCheckpointError(f"{path}: {shown(member.name)} is a link, a device or the like, not a file")
    if name.is_absolute() or ".." in name.parts:
        raise UnsafeCheckpointError(f"{path}: {shown(member.name)} would land outside the archive")
    if not 0 <= member.size <= MAX_UNPACKED_BYTES:
        raise UnsafeCheckpointError(f"{path}: {shown(member.name)} claims to have {member.size} bytes")
    if member.isfile() and name.name in before:
        raise UnsafeCheckpointError(f"{path} has two files named {shown(name.name)}")
    if len(before) >= MAX_MEMBERS:
        raise UnsafeCheckpointError(f"{path} has more than {MAX_MEMBERS} files")
