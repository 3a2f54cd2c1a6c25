"""Files on this machine and in object stores, by path or URL (fsspec)."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from bulk.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTIAL = ".partial"


def is_url(location: str) -> bool:
    """Return whether a location is a URL for fsspec, and not a path of this machine."""
    return "://" in location


def absolute(location: str) -> str:
    """Return the location as an absolute path, for processes with another working directory."""
    return location if is_url(location) else os.path.abspath(location)  # noqa: PTH100  # does not resolve links


def file_system(location: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it; an OSError says if it is not known or installed."""
    from fsspec.core import url_to_fs

    try:
        return cast("tuple[Any, str]", url_to_fs(location))
    except (ImportError, ValueError) as error:
        raise OSError(str(error)) from error


@contextmanager
def store_errors(location: str) -> Iterator[None]:
    """Raise an OSError that says why, whatever the client of an object store raises for a location."""
    try:
        yield
    except FileNotFoundError as error:
        # Clients say no more than the path.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location) from error
    except (OSError, JobError):
        raise
    except Exception as error:  # clients have errors of their own
        raise OSError(f"{type(error).__name__}: {error}") from error


def fetched(location: str) -> BinaryIO:
    """Open a recording as a seekable file with a descriptor; a remote one and a pipe are copied to an unnamed file."""
    if is_url(location):
        with reading(location) as remote:
            return _copied(remote)
    file = Path(location).open("rb")  # noqa: SIM115  # closed by the caller
    if file.seekable():
        return file
    with file:
        return _copied(file)


def _copied(file: BinaryIO) -> BinaryIO:
    copy = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the caller
    try:
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return cast("BinaryIO", copy)


@contextmanager
def reading(location: str) -> Iterator[BinaryIO]:
    """Open a file for reading once, from its beginning; an OSError says why it cannot be read."""
    if not is_url(location):
        with Path(location).open("rb") as file:
            yield file
        return
    with store_errors(location):
        system, path = file_system(location)
        with system.open(path, "rb") as file:
            yield file


class Folder:
    """A job's output: a folder, or a prefix of an object store, which is there from its first file on.

    A file in it is complete or missing.
    """

    def __init__(self, location: str) -> None:
        self.location = absolute(location).rstrip("/")

    def names(self) -> set[str]:
        """Return the names of its files; an OSError says why they cannot be read."""
        if not is_url(self.location):
            folder = Path(self.location)
            return {path.name for path in folder.iterdir() if path.is_file()} if folder.exists() else set()
        try:
            with store_errors(self.location):
                system, path = file_system(self.location)
                system.invalidate_cache()
                found = system.ls(path, detail=True)
        except FileNotFoundError:
            return set()
        return {info["name"].rsplit("/", 1)[-1] for info in found if info["type"] == "file"}

    def read(self, name: str) -> bytes:
        """Return the content of a file; an OSError says why it cannot be read."""
        with reading(f"{self.location}/{name}") as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and replace one of the same name; an OSError says why it cannot be written."""
        if is_url(self.location):
            with store_errors(self.location):
                system, path = file_system(f"{self.location}/{name}")
                system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
                # Object stores show an object only when all of it has arrived.
                system.pipe_file(path, content)
            return
        target = Path(self.location, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}{_PARTIAL}")
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def tidy(self) -> None:
        """Remove the unfinished files of writers that were killed."""
        if not is_url(self.location):
            for partial in Path(self.location).rglob(f".*{_PARTIAL}"):
                partial.unlink(missing_ok=True)
