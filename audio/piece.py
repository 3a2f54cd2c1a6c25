"""A piece of a file."""

import io
import os
from typing import BinaryIO


class Piece(io.RawIOBase, BinaryIO):
    """The bytes ``start`` to ``stop`` - 1 of a seekable file, by default up to its end. The file is left open."""

    def __init__(self, file: BinaryIO, start: int, stop: int | None = None) -> None:
        super().__init__()
        self._file = file
        self._start = start
        self._stop = file.seek(0, os.SEEK_END) if stop is None else stop
        file.seek(start)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read in any order."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most ``size``."""
        left = max(0, self._stop - self._file.tell())
        return self._file.read(left if size < 0 else min(size, left))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; return which."""
        origin = {os.SEEK_SET: self._start, os.SEEK_CUR: self._file.tell(), os.SEEK_END: self._stop}[whence]
        return self._file.seek(max(self._start, origin + offset)) - self._start

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell() - self._start
