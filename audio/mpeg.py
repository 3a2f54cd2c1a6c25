"""Recognises streams of MPEG audio, AAC and MPEG-TS by their headers; says whether an MP3 gives its exact length."""

from collections.abc import Callable
from os import SEEK_END
from typing import BinaryIO

# Enough for the end of a frame and the row of frames after it: the longest of MPEG audio has 2,881 bytes.
SEARCHED_BYTES = 1 << 14
_FRAMES_IN_A_ROW = 4  # in random data, one place in 4,000 looks like a frame header
_KILOBITS = {  # by version 1 or not, and layer (ISO 11172-3, 2.4.2.3; ISO 13818-3, 2.4.2.3)
    (True, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_TS_PACKET = 188

_ID3_BYTES = 10
_ID3V1_BYTES = 128  # the old tag, at the end of a file
_TAG_WITHIN = 64  # the Xing tag comes after header, checksum and side information, at most 38 bytes


def is_frame_header(head: bytes) -> bool:
    """Return whether ``head`` begins with a frame header of MPEG audio, layer I to III (ISO 11172-3, 2.4.1.3)."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer != 0 and bitrate != 15 and rate != 3


def is_adts_header(head: bytes) -> bool:
    """Return whether ``head`` begins with an ADTS header of AAC: layer 0, a known rate (ISO 14496-3, 1.A.2.2)."""
    return len(head) > 2 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0 and head[2] >> 2 & 15 < 13


def stream_within(data: bytes) -> str | None:
    """Return mp3, aac or ts if ``data`` is a piece of such a stream, else None.

    Radio captures and pieces of split files begin in the middle of a frame. They are recognised by a few frames in a
    row, each of which begins where the one before ends by its header.
    """
    for start in range(max(0, len(data) - 4)):
        if data[start] == 0x47 and start < _TS_PACKET and data[start::_TS_PACKET][:_FRAMES_IN_A_ROW] == b"GGGG":
            return "ts"
        if data[start] == 0xFF:
            for container, length in (("mp3", _frame_bytes), ("aac", _adts_bytes)):
                if _is_row(data, start, length):
                    return container
    return None


def _is_row(data: bytes, start: int, length: Callable[[bytes], int]) -> bool:
    for _ in range(_FRAMES_IN_A_ROW):
        size = length(data[start : start + 6])
        if not size:
            return False
        start += size
    return True


def _frame_bytes(head: bytes) -> int:
    """Return the length of the MPEG audio frame with this header; 0 if it is no header or has no length."""
    if not is_frame_header(head):
        return 0
    version, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    bits = 1000 * _KILOBITS[version == 3, layer][head[2] >> 4]
    rate, padding = _RATES[version][head[2] >> 2 & 3], head[2] >> 1 & 1
    if layer == 1:
        return (12 * bits // rate + padding) * 4 if bits else 0
    samples = 72 if layer == 3 and version != 3 else 144
    return samples * bits // rate + padding if bits else 0


def _adts_bytes(head: bytes) -> int:
    """Return the length of the ADTS frame with this header, or 0."""
    if len(head) < 6 or not is_adts_header(head):
        return 0
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return size if size > 7 else 0


def gives_its_length(file: BinaryIO) -> bool:
    """Return whether an MP3 begins with a Xing or Info tag that counts frames and bytes, and ends after these bytes.

    An ID3v1 tag may follow. Further bytes are further MP3s: players and recorders join files by appending them.
    """
    size = file.seek(0, SEEK_END)
    start = after_id3(file)
    file.seek(start)
    frame = file.read(_TAG_WITHIN + 16)
    place = next((place for tag in (b"Xing", b"Info") if 0 <= (place := frame.find(tag)) < _TAG_WITHIN), None)
    if place is None:
        return False
    flags, _, count = (int.from_bytes(frame[place + at : place + at + 4], "big") for at in (4, 8, 12))
    return flags & 3 == 3 and start + count + _ID3V1_BYTES >= size


def after_id3(file: BinaryIO) -> int:
    """Return the offset of the audio, behind an ID3v2 tag if there is one; its size has seven bits in each byte."""
    file.seek(0)
    head = file.read(_ID3_BYTES)
    if len(head) < _ID3_BYTES or not head.startswith(b"ID3"):
        return 0
    has_footer = bool(head[5] & 0x10)
    size = sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
    return _ID3_BYTES + size + _ID3_BYTES * has_footer
