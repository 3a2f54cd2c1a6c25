"""Pages of Ogg files, to find files that hold several recordings, and how long a recording is."""

import re
from os import SEEK_END
from typing import BinaryIO

_MOST_BYTES_OF_PAGE = 65_307
_GRANULE = slice(6, 14)  # the number of frames at the end of a page
_SERIAL = slice(14, 18)  # in a page's header: the number of its stream (RFC 3533, section 6)


def is_joined(file: BinaryIO) -> bool:
    """Return whether the last page is of another stream than the first, as in recordings that were joined."""
    file.seek(0)
    first = file.read(_SERIAL.stop)
    last = _last_page(file)
    return last.startswith(b"OggS") and last[_SERIAL] != first[_SERIAL]


def vorbis_frames(file: BinaryIO) -> tuple[int, int]:
    """Return the number of frames of a Vorbis file, by its last page, and their rate; 0 where the pages do not say.

    A recording of a radio begins with a high number, which is that of its first page with sound.
    """
    file.seek(0)
    head = file.read(2 * _MOST_BYTES_OF_PAGE)
    place = head.find(b"\x01vorbis")
    rate = int.from_bytes(head[place + 12 : place + 16], "little")
    starts = (match.start() for match in re.finditer(b"OggS", head))
    first = next((granule for at in starts if (granule := _granule(head[at : at + _GRANULE.stop])) > 0), 0)
    last = _granule(_last_page(file))
    return (max(0, last - first), rate) if rate else (0, 1)


def _last_page(file: BinaryIO) -> bytes:
    size = file.seek(0, SEEK_END)
    file.seek(max(0, size - _MOST_BYTES_OF_PAGE))
    end = file.read(_MOST_BYTES_OF_PAGE)
    return end[max(0, end.rfind(b"OggS")) :]


def _granule(page: bytes) -> int:
    return int.from_bytes(page[_GRANULE], "little", signed=True) if page.startswith(b"OggS") else 0
