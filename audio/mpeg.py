"""Headers of MPEG audio: what a frame looks like, and whether a file's first frame tells its exact length."""

from os import SEEK_END
from typing import BinaryIO

_ID3_BYTES = 10
_ID3V1_BYTES = 128  # the old tag, at the end of a file
_TAG_WITHIN = 64  # the Xing tag stands after the side information, which has 32 bytes at most


def is_frame_header(head: bytes) -> bool:
    """Whether a frame header of MPEG audio, layer I to III, stands at the start (ISO 11172-3, 2.4.1.3)."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer != 0 and bitrate != 15 and rate != 3


def is_adts_header(head: bytes) -> bool:
    """Whether a frame header of AAC in ADTS stands at the start (ISO 14496-3, 1.A.2.2): layer 0, a known rate."""
    return len(head) > 2 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0 and head[2] >> 2 & 15 < 13


def tells_its_length(file: BinaryIO) -> bool:
    """Whether an MP3 begins with a Xing or Info tag that counts frames and bytes, and nothing follows those bytes.

    More after them are further MP3s: players and recorders join files by appending them.
    """
    size = file.seek(0, SEEK_END)
    start = _after_id3(file)
    file.seek(start)
    frame = file.read(_TAG_WITHIN + 16)
    place = next((place for tag in (b"Xing", b"Info") if 0 <= (place := frame.find(tag)) < _TAG_WITHIN), None)
    if place is None:
        return False
    flags, _, count = (int.from_bytes(frame[place + at : place + at + 4], "big") for at in (4, 8, 12))
    return flags & 3 == 3 and start + count + _ID3V1_BYTES >= size


def _after_id3(file: BinaryIO) -> int:
    """Where the audio begins: after an ID3v2 tag, whose size has seven bits in each byte."""
    file.seek(0)
    head = file.read(_ID3_BYTES)
    if len(head) < _ID3_BYTES or not head.startswith(b"ID3"):
        return 0
    has_footer = bool(head[5] & 0x10)
    size = sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
    return _ID3_BYTES + size + _ID3_BYTES * has_footer
