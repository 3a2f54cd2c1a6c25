"""Headers of WAV files: the codec, and whether the sizes are correct."""

import struct
from dataclasses import dataclass
from os import SEEK_END
from typing import BinaryIO, Literal

# A writer that does not know the size yet writes 0, or at least this.
_OPEN_SIZE = 0x7FFF_0000
_FORMAT_BYTES = 16  # of the format chunk, up to and including bits per sample
_PCM = 1
_MOST_CHUNKS = 100  # that are read; real files have one to ten before the samples


@dataclass(frozen=True, slots=True)
class Pcm:
    """Whole little-endian 16-bit PCM in a WAV file: ``frames`` samples of each channel, from the byte ``start`` on."""

    channels: int
    rate: int
    start: int
    frames: int


@dataclass(frozen=True, slots=True)
class WavHeader:
    """The header of a WAV file."""

    codec: int  # the format tag of the codec; 0 if it is missing
    is_cut: bool  # whether the file is shorter than its header says
    hides_samples: bool  # whether the header says 0 bytes of samples but bytes follow, as when it was written to a pipe
    pcm: Pcm | None = None  # where the samples are, if they are complete 16-bit PCM, little-endian; else None
    is_followed: bool = False  # whether something else than chunks comes behind the samples: another file, or more


def read_header(file: BinaryIO) -> WavHeader:
    """Read the chunks of a WAV file up to its samples. Headers of RF64 and W64 are left to libsndfile."""
    size = file.seek(0, SEEK_END)
    file.seek(0)
    head = file.read(12)
    if head[:4] not in {b"RIFF", b"RIFX"} or head[8:] != b"WAVE":
        return WavHeader(codec=0, is_cut=False, hides_samples=False)
    order: Literal["little", "big"] = "little" if head.startswith(b"RIFF") else "big"
    is_cut = size < int.from_bytes(head[4:8], order) + 8 < _OPEN_SIZE
    fmt = b""
    for _ in range(_MOST_CHUNKS):
        name, length = file.read(4), int.from_bytes(file.read(4), order)
        if name in {b"data", b""}:
            start, is_data = file.tell(), name == b"data"
            hides = is_data and length == 0 and start < size
            is_whole = is_data and order == "little" and start + length <= size
            pcm = _pcm(fmt, start, length) if is_whole else None
            is_short = is_data and 0 < length < size - start
            follows = is_short and _is_followed(file, start + length + length % 2, size, order)
            return WavHeader(_codec(fmt, order), is_cut, hides, pcm, follows)
        if name == b"fmt ":
            fmt = file.read(min(length, _FORMAT_BYTES))
            file.seek(length - len(fmt) + length % 2, 1)
        else:
            file.seek(length + length % 2, 1)
    return WavHeader(_codec(fmt, order), is_cut, hides_samples=False)


def _is_followed(file: BinaryIO, end: int, size: int, order: Literal["little", "big"]) -> bool:
    """Return whether something else than a chunk comes behind the samples, as in joined files; padding is nothing."""
    file.seek(end)
    head = file.read(8)
    name, length = head[:4], int.from_bytes(head[4:], order)
    is_chunk = name.isascii() and name.decode("ascii").isprintable() and end + 8 + length <= size
    return len(head) == 8 and any(head) and (name in {b"RIFF", b"RIFX"} or not is_chunk)


def _codec(fmt: bytes, order: Literal["little", "big"]) -> int:
    return int.from_bytes(fmt[:2], order)


def _pcm(fmt: bytes, start: int, length: int) -> Pcm | None:
    if len(fmt) < _FORMAT_BYTES:
        return None
    codec, channels, rate, _, frame_bytes, bits = struct.unpack("<HHIIHH", fmt)
    if codec != _PCM or bits != 16 or not channels or not rate or frame_bytes != 2 * channels or length < frame_bytes:
        return None
    return Pcm(channels, rate, start, length // frame_bytes)
