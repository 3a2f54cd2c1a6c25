"""A file without its beginning."""

import io
import os
from typing import BinaryIO


class Behind(io.RawIOBase, BinaryIO):
    """What comes behind the first ``start`` bytes of a file, to be read. It is left open.

    Args:
        file: a seekable file.
        start: where it begins.
    """

    def __init__(self, file: BinaryIO, start: int) -> None:
        super().__init__()
        self._file = file
        self._start = start
        file.seek(start)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read in any order."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most ``size``."""
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; return which."""
        place = self._file.seek(max(0, offset) + self._start if whence == os.SEEK_SET else offset, whence)
        return max(0, place - self._start)

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell() - self._start
