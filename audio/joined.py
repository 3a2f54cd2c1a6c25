"""Finds where the recordings of a joined file begin: each has a header of its own, directly behind the one before.

Readers end with the first of them. MP3, AAC, Ogg and transport streams need nothing of this: they are read on anyway.
"""

from os import SEEK_END
from typing import BinaryIO

_MOST = 1000  # recordings of a file
_MOST_CHUNKS = 100_000  # of a file; a fragmented MP4 has two a second
_FLAC_BEGINS = b"fLaC\0\0\0\x22"  # and the header of its first block, whose length is fixed (RFC 9639, 8.2)
_CONTAINERS = ("wav", "aiff", "caf", "mp4", "wma")
_ASF_HEADER = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_SEARCHED_AT_A_TIME = 1 << 20


def begins(file: BinaryIO, container: str) -> list[int]:
    """Return the offsets at which the recordings of a file begin, the first of which is 0; FLAC's has `flacs_behind`.

    Only headers are read: their sizes lead from one to the next.
    """
    if container not in _CONTAINERS:
        return [0]
    size = file.seek(0, SEEK_END)
    found, place = [0], 0
    for _ in range(_MOST_CHUNKS):
        file.seek(place)
        head = file.read(32)
        if len(head) < 12 or len(found) == _MOST:
            break
        if place and _is_beginning(container, head):
            found.append(place)
        length = _step(container, head, is_first=place == found[-1])
        if not 0 < length < size - place:
            break
        place += length
    return found


def flacs_behind(file: BinaryIO, place: int) -> list[int]:
    """Return where FLAC files begin at or behind a place."""
    found: list[int] = []
    file.seek(place)
    held = b""
    while len(found) < _MOST and (block := file.read(_SEARCHED_AT_A_TIME)):
        data = held + block
        at = data.find(_FLAC_BEGINS)
        while at >= 0:
            found.append(place - len(held) + at)
            at = data.find(_FLAC_BEGINS, at + 1)
        place += len(block)
        held = data[1 - len(_FLAC_BEGINS) :]
    return found[:_MOST]


def _is_beginning(container: str, head: bytes) -> bool:
    match container:
        case "wav":
            return head.startswith(b"RIFF") and head[8:12] == b"WAVE"
        case "aiff":
            return head.startswith(b"FORM") and head[8:12] in {b"AIFF", b"AIFC"}
        case "caf":
            return head.startswith(b"caff\0\x01")
        case "mp4":
            return head[4:8] == b"ftyp"
        case _:
            return head.startswith(_ASF_HEADER)


def _step(container: str, head: bytes, *, is_first: bool) -> int:
    """Return the bytes from a header, perhaps a recording's first, up to the next; 0 where it does not say."""
    match container:
        case "wav":
            length = int.from_bytes(head[4:8], "little")
            return 8 + length + length % 2 if head.startswith(b"RIFF") else 0
        case "aiff":
            length = int.from_bytes(head[4:8], "big")
            return 8 + length + length % 2 if head.startswith(b"FORM") else 0
        case "caf":
            return 8 if is_first else 12 + int.from_bytes(head[4:12], "big")
        case "mp4":
            length = int.from_bytes(head[:4], "big")
            return int.from_bytes(head[8:16], "big") if length == 1 else length
        case _:
            return int.from_bytes(head[16:24], "little")
