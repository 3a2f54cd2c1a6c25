"""Headers of WAV files: the codec, and whether the sizes are correct."""

import struct
from dataclasses import dataclass
from os import SEEK_END
from typing import BinaryIO, Literal

# A program that does not know the size yet writes at least this, or 0.
_OPEN_SIZE = 0x7FFF_0000
_FORMAT_BYTES = 16  # of the format chunk, up to the bits of a sample
_PCM = 1
_MOST_CHUNKS = 100  # before the samples; real files have one to ten


@dataclass(frozen=True, slots=True)
class Pcm:
    """16-bit PCM in a WAV file, all of which is there.

    Attributes:
        channels: number of channels.
        rate: samples per second.
        start: offset of the first sample, in bytes.
        frames: samples of each channel.
    """

    channels: int
    rate: int
    start: int
    frames: int


@dataclass(frozen=True, slots=True)
class WavHeader:
    """The header of a WAV file.

    Attributes:
        codec: the format tag of the codec, 0 where there is none.
        is_cut: whether the file is shorter than it says.
        hides_samples: whether it says that it has no samples, but bytes follow, because it was written to a pipe.
        pcm: its samples, if they are 16-bit PCM and as many as it says.
    """

    codec: int
    is_cut: bool
    hides_samples: bool
    pcm: Pcm | None = None


def read_header(file: BinaryIO) -> WavHeader:
    """Read the chunks of a WAV file up to its samples. RF64 and W64 are not checked: their sizes are correct."""
    size = file.seek(0, SEEK_END)
    file.seek(0)
    head = file.read(12)
    if head[:4] not in {b"RIFF", b"RIFX"}:
        return WavHeader(codec=0, is_cut=False, hides_samples=False)
    order: Literal["little", "big"] = "little" if head.startswith(b"RIFF") else "big"
    is_cut = size < int.from_bytes(head[4:8], order) + 8 < _OPEN_SIZE
    fmt = b""
    for _ in range(_MOST_CHUNKS):
        name, length = file.read(4), int.from_bytes(file.read(4), order)
        if name in {b"data", b""}:
            start = file.tell()
            hides = name == b"data" and length == 0 and start < size
            is_whole = name == b"data" and order == "little" and start + length <= size
            return WavHeader(_codec(fmt, order), is_cut, hides, _pcm(fmt, start, length) if is_whole else None)
        if name == b"fmt ":
            fmt = file.read(min(length, _FORMAT_BYTES))
            file.seek(length - len(fmt) + length % 2, 1)
        else:
            file.seek(length + length % 2, 1)
    return WavHeader(_codec(fmt, order), is_cut, hides_samples=False)


def _codec(fmt: bytes, order: Literal["little", "big"]) -> int:
    return int.from_bytes(fmt[:2], order)


def _pcm(fmt: bytes, start: int, length: int) -> Pcm | None:
    if len(fmt) < _FORMAT_BYTES:
        return None
    codec, channels, rate, _, frame_bytes, bits = struct.unpack("<HHIIHH", fmt)
    if codec != _PCM or bits != 16 or not channels or not rate or frame_bytes != 2 * channels or length < frame_bytes:
        return None
    return Pcm(channels, rate, start, length // frame_bytes)
