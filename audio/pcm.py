"""Decodes 16-bit PCM, the format of most clips, with a multiplication in NumPy: in a WAV file, or without a header.

It needs no library, and so no process of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from os import SEEK_END
from typing import BinaryIO, Self

import numpy as np

from audio.limits import AudioLimits, check_form
from audio.riff import Pcm, read_header
from audio.samples import Samples
from audio.source import Mix

RAW = "pcm"  # the container of samples without a header

_SAMPLE_BYTES = 2
_SCALE = np.float32(2.0**-15)
_QUICK_BYTES = 1 << 19  # 16 s of one channel at 16 kHz
_VALUES_OF_BLOCK = 1 << 18  # the same


@dataclass(frozen=True, slots=True)
class RawFormat:
    """The format of raw 16-bit PCM: channels, samples per second, and byte order."""

    channels: int
    rate: int
    big_endian: bool = False

    @classmethod
    def of_media_type(cls, media_type: str) -> Self | None:
        """Read `audio/pcm;rate=16000;channels=1` (little-endian) or `audio/l16;...` (big-endian, RFC 2586).

        `audio/l16` has one channel by default. Returns None for other types and where rate or channels are missing;
        then the content decides.
        """
        kind = media_type.partition(";")[0].strip().lower()
        if kind not in {"audio/pcm", "audio/l16"}:
            return None
        message = Message()
        message["content-type"] = media_type
        usual = "1" if kind == "audio/l16" else ""
        rate, channels = str(message.get_param("rate", "")), str(message.get_param("channels", usual))
        if not (_is_number(rate) and _is_number(channels)):
            return None
        return cls(channels=int(channels), rate=int(rate), big_endian=kind == "audio/l16")


def quick_pcm(file: BinaryIO, rate: int) -> Pcm | None:
    """Return the samples of a WAV file that decode at this ``rate`` in less time than a thread takes to get the file.

    None for any other file, whose position is then anywhere.
    """
    is_small = file.seek(0, SEEK_END) <= _QUICK_BYTES
    file.seek(0)
    header = read_header(file) if is_small and file.read(4) == b"RIFF" else None
    return header.pcm if header and header.pcm and header.pcm.rate == rate and not header.is_followed else None


class PcmSource:
    """The samples of a WAV file that is as long as its header says, or of one without; an ``audio.source.Source``."""

    track = tracks = 1
    ended_early = False

    def __init__(self, file: BinaryIO, pcm: Pcm, limits: AudioLimits, *, big_endian: bool = False) -> None:
        check_form(pcm.channels, pcm.rate)
        self._file = file
        self._pcm = pcm
        self._type = ">i2" if big_endian else "<i2"
        self._limits = limits
        self.channels = pcm.channels
        self.rate = pcm.rate
        self.frames = 0
        self.broken = False

    @classmethod
    def raw(cls, file: BinaryIO, form: RawFormat, limits: AudioLimits) -> Self:
        """Return the samples of a file of this format, without a header; half a frame at its end is left out."""
        frames = file.seek(0, SEEK_END) // (_SAMPLE_BYTES * form.channels)
        return cls(file, Pcm(form.channels, form.rate, 0, frames), limits, big_endian=form.big_endian)

    @property
    def seconds(self) -> float:
        """Length of what was decoded so far."""
        return self.frames / self.rate

    def blocks(self, mix: Mix) -> Iterator[Samples]:
        """Yield blocks of at most 2**18 values, as ``Source.blocks`` does."""
        self._file.seek(self._pcm.start)
        while left := self._pcm.frames - self.frames:
            size = _SAMPLE_BYTES * self.channels * min(left, _VALUES_OF_BLOCK // self.channels)
            values = np.frombuffer(self._file.read(size), self._type)
            block: Samples = np.multiply(values.reshape(-1, self.channels), _SCALE, dtype=np.float32)
            self.frames += len(block)
            self._limits.check_decoded(self.frames, self.rate, self.channels)
            yield mix(block)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
