"""Read a ``.nemo`` archive, a tar file that may be gzipped; its headers are checked, and no file is written."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from models.errors import (
    CheckpointError,
    MissingCheckpointError,
    UnreadableCheckpointError,
    UnsafeCheckpointError,
    shown,
)

MAX_MEMBERS = 256
MAX_MEMBER_BYTES = 32 * 2**30
# Unpacked bytes per byte of gzip, beside a few megabytes of text. Weights hardly compress, and nothing else is large:
# more is a bomb, which would fill the memory.
MAX_COMPRESSION = 4
_MOST_TEXT_BYTES = 1 << 24
# A tar header has 512 bytes, and its extensions a few hundred; longer ones only take time.
MAX_HEADER_BYTES = 4096

GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 2**20
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
_DAMAGE = (tarfile.TarError, OSError, EOFError, OverflowError, MemoryError, RecursionError, zlib.error)


class Archive:
    """The files of an open archive, by base name."""

    def __init__(self, path: Path, tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo]) -> None:
        self.path = path
        self._tar = tar
        self._members = members

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the content of a file.

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
    """Open an archive after checking every header in it.

    Raises:
        MissingCheckpointError: if there is no such file.
        UnreadableCheckpointError: if it is no tar file, or is damaged.
        UnsafeCheckpointError: if a member is no file or folder, has a path out of the archive, or is too large; if two
            files have the same base name; or if there are too many members or unpacked bytes.
    """
    if not path.exists():
        raise MissingCheckpointError(f"there is no checkpoint at {path}")
    if not path.is_file():
        raise UnreadableCheckpointError(f"{path} is not a file; a checkpoint is a .nemo file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise UnreadableCheckpointError(f"{path} cannot be read: {error.strerror}") from error
    with file, archive_in(_unpacked(file, path), path) as archive:
        yield archive


@contextmanager
def archive_in(file: IO[bytes], path: Path) -> Iterator[Archive]:
    """Open the archive in a seekable file after checking every header in it; errors name it by ``path``.

    Raises:
        CheckpointError: as `open_archive`.
    """
    headers = _HeaderStream(file, path)
    tar, members = _scan(headers, path)
    headers.max_read = None
    with tar:
        yield Archive(path, tar, members)


def _unpacked(file: IO[bytes], path: Path) -> IO[bytes]:
    """Return the tar file: ``file``, or, if that is gzipped, its content, unpacked in memory."""
    compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    file.seek(0)
    if not compressed:
        return file
    end = _MOST_TEXT_BYTES + MAX_COMPRESSION * path.stat().st_size
    unpacked = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=file) as source:
            while unpacked.tell() <= end and (chunk := source.read(_CHUNK)):
                unpacked.write(chunk)
    except _DAMAGE as error:
        raise UnreadableCheckpointError(f"{path} is damaged: {error}") from error
    if unpacked.tell() > end:
        raise UnsafeCheckpointError(f"{path} unpacks to more than {MAX_COMPRESSION} times its size")
    unpacked.seek(0)
    return unpacked


class _HeaderStream:
    """A tar file that refuses to read more than ``max_read`` bytes at once; None is no limit."""

    def __init__(self, source: IO[bytes], path: Path) -> None:
        self.max_read: int | None = MAX_HEADER_BYTES
        self._source = source
        self._path = path

    def read(self, size: int = -1) -> bytes:
        if self.max_read is not None and not 0 <= size <= self.max_read:
            raise UnsafeCheckpointError(f"{self._path} has a header of {size} bytes")
        return self._source.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self._source.seek(position, whence)

    def tell(self) -> int:
        return self._source.tell()

    def seekable(self) -> bool:
        return True


def _scan(stream: _HeaderStream, path: Path) -> tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]:
    """Check every header, and return the open tar file and its files by base name."""
    members: dict[str, tarfile.TarInfo] = {}
    try:
        tar = tarfile.TarFile(fileobj=stream)  # type: ignore[arg-type]  # it has the methods that tarfile needs
        for count, member in enumerate(tar, start=1):
            _refuse_unsafe(member, count, path)
            _refuse_duplicate(member, members, path)
            if member.isfile():
                members[PurePosixPath(member.name).name] = member
    except CheckpointError:
        raise
    except (*_DAMAGE, ValueError) as error:
        raise UnreadableCheckpointError(f"{path} is not a readable .nemo archive: {error}") from error
    return tar, members


def _refuse_unsafe(member: tarfile.TarInfo, count: int, path: Path) -> None:
    if count > MAX_MEMBERS:
        raise UnsafeCheckpointError(f"{path} has more than {MAX_MEMBERS} members")
    if member.type not in _PLAIN_TYPES or member.issparse():
        raise UnsafeCheckpointError(f"{path}: {shown(member.name)} is a link, a device or the like, not a file")
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise UnsafeCheckpointError(f"{path}: {shown(member.name)} has a path out of the archive")
    if not 0 <= member.size <= MAX_MEMBER_BYTES:
        raise UnsafeCheckpointError(f"{path}: {shown(member.name)} claims to have {member.size} bytes")


def _refuse_duplicate(member: tarfile.TarInfo, before: dict[str, tarfile.TarInfo], path: Path) -> None:
    name = PurePosixPath(member.name).name
    if member.isfile() and name in before:
        raise UnsafeCheckpointError(f"{path} has two files named {shown(name)}")
