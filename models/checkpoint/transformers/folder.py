"""Reading the files of an untrusted folder: by plain names, of limited size, and no link out of it."""

import os
import stat
from pathlib import Path, PurePosixPath

from models.errors import UnreadableCheckpointError, UnsafeCheckpointError, shown

MAX_FILE_BYTES = 32 * 2**30


class Folder:
    """A folder with the files of a checkpoint.

    A link is followed only to a file of the same folder, or of the hub's cache that the folder is part of: there
    ``snapshots/<commit>/<name>`` is a link to ``blobs/<digest>``.
    """

    def __init__(self, path: Path) -> None:
        """Wrap an existing folder."""
        self.path = path
        resolved = path.resolve()
        snapshots = resolved.parent
        self._roots = [resolved, *([snapshots.parent / "blobs"] if snapshots.name == "snapshots" else [])]

    def has(self, name: str) -> bool:
        """Return whether the folder has that name, even for a broken link, which `locate` refuses."""
        return os.path.lexists(self.path / name)

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a whole file.

        Raises:
            UnreadableCheckpointError: if there is no such file, or it cannot be read.
            UnsafeCheckpointError: if it is larger than ``max_bytes``, or as for `locate`.
        """
        path, size = self.locate(name)
        if size > max_bytes:
            raise UnsafeCheckpointError(f"{self.path}: {shown(name)} has {size} bytes; at most {max_bytes} are read")
        try:
            with path.open("rb") as file:
                return file.read(max_bytes)
        except OSError as error:
            raise UnreadableCheckpointError(f"{path} cannot be read: {error.strerror}") from error

    def locate(self, name: str) -> tuple[Path, int]:
        """Return the path of a file with links resolved, and its size in bytes.

        Raises:
            UnreadableCheckpointError: if there is no such file.
            UnsafeCheckpointError: if the name is a path, or the file is too large, no plain file, or lies elsewhere.
        """
        if name != PurePosixPath(name).name or "\0" in name:
            raise UnsafeCheckpointError(f"{self.path}: {shown(name)} is not the name of a file in this folder")
        try:
            path = (self.path / name).resolve(strict=True)
            status = path.stat()
        # Which error a circular link raises depends on Python's version; a name may be invalid Unicode.
        except (OSError, RuntimeError, UnicodeError) as error:
            raise UnreadableCheckpointError(f"{self.path} has no file {shown(name)}") from error
        if path.parent not in self._roots:
            raise UnsafeCheckpointError(f"{self.path}: {shown(name)} is a link out of the folder")
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            raise UnsafeCheckpointError(
                f"{self.path}: {shown(name)} is no plain file, or has more than {MAX_FILE_BYTES} bytes"
            )
        return path, status.st_size
