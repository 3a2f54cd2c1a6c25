"""Headers of WAV files: the codec, and whether the sizes are true."""

from dataclasses import dataclass
from os import SEEK_END
from typing import BinaryIO, Literal

# What a program writes as a size that it does not know yet is this or more, or 0.
_OPEN_SIZE = 0x7FFF_0000
_MOST_CHUNKS = 100  # before the samples; files have one to ten


@dataclass(frozen=True, slots=True)
class WavHeader:
    """What a WAV file says about itself.

    Attributes:
        codec: the tag of its codec, 0 where it has none.
        is_cut: whether the file is shorter than it says.
        hides_samples: whether it says that it has no samples, but bytes follow: it was written to a pipe.
    """

    codec: int
    is_cut: bool
    hides_samples: bool


def read_header(file: BinaryIO) -> WavHeader:
    """Walk through the chunks of a WAV file up to its samples; RF64 and W64 have true sizes and are left alone."""
    size = file.seek(0, SEEK_END)
    file.seek(0)
    head = file.read(12)
    if head[:4] not in {b"RIFF", b"RIFX"}:
        return WavHeader(codec=0, is_cut=False, hides_samples=False)
    order: Literal["little", "big"] = "little" if head.startswith(b"RIFF") else "big"
    is_cut = size < int.from_bytes(head[4:8], order) + 8 < _OPEN_SIZE
    codec = 0
    for _ in range(_MOST_CHUNKS):
        name, length = file.read(4), int.from_bytes(file.read(4), order)
        if name in {b"data", b""}:
            hides = name == b"data" and length == 0 and file.tell() < size
            return WavHeader(codec, is_cut, hides)
        if name == b"fmt ":
            codec = int.from_bytes(file.read(2), order)
            length -= 2
        file.seek(max(length, 0) + length % 2, 1)
    return WavHeader(codec, is_cut, hides_samples=False)
