"""Headers of WAV files: the codec, and whether the sizes are correct."""

from dataclasses import dataclass
from os import SEEK_END
from typing import BinaryIO, Literal

# A program that does not know the size yet writes at least this, or 0.
_OPEN_SIZE = 0x7FFF_0000
_MOST_CHUNKS = 100  # before the samples; real files have one to ten


@dataclass(frozen=True, slots=True)
class WavHeader:
    """The header of a WAV file.

    Attributes:
        codec: the format tag of the codec, 0 where there is none.
        is_cut: whether the file is shorter than it says.
        hides_samples: whether it says that it has no samples, but bytes follow, because it was written to a pipe.
    """

    codec: int
    is_cut: bool
    hides_samples: bool


def read_header(file: BinaryIO) -> WavHeader:
    """Read the chunks of a WAV file up to its samples. RF64 and W64 are not checked: their sizes are correct."""
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
