"""Pages of Ogg files, to find files that hold several recordings."""

from os import SEEK_END
from typing import BinaryIO

_MOST_BYTES_OF_PAGE = 65_307
_SERIAL = slice(14, 18)  # in a page's header: the number of its stream (RFC 3533, section 6)


def is_joined(file: BinaryIO) -> bool:
    """Return whether the last page is of another stream than the first, as in recordings that were joined."""
    size = file.seek(0, SEEK_END)
    file.seek(0)
    first = file.read(_SERIAL.stop)
    file.seek(max(0, size - _MOST_BYTES_OF_PAGE))
    end = file.read(_MOST_BYTES_OF_PAGE)
    last = end[max(0, end.rfind(b"OggS")) :]
    return last.startswith(b"OggS") and last[_SERIAL] != first[_SERIAL]
