"""Decode a file to mono samples at one rate, within limits and in bounded memory.

What a header claims about the length is not believed: what counts is what decodes. libsndfile and soxr release the
interpreter lock while they work, so threads decode at the same time.
"""

from dataclasses import dataclass
from os import SEEK_END
from typing import BinaryIO

import numpy as np

from audio.errors import AudioTooShortError, InvalidAudioError
from audio.limits import AudioLimits
from audio.resample import Samples, resampled
from audio.sniff import HEAD_BYTES, sniff
from audio.source import Source

# What a program writes as the size of a WAV file when it does not know it yet is this or more.
_OPEN_WAV_SIZE = 0x7FFF_0000


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """Decoded audio.

    Attributes:
        samples: mono, float32 [n], full scale is 1.
        sample_rate: samples per second.
        seconds: length of what was decoded.
        container: wav, flac, mp3 or ogg.
        channels: channels of the source, whose mean ``samples`` is.
        source_rate: sample rate of the source.
        truncated: whether the source is known to have ended before it should.
    """

    samples: Samples
    sample_rate: int
    seconds: float
    container: str
    channels: int
    source_rate: int
    truncated: bool


def decode(file: BinaryIO, *, rate: int, limits: AudioLimits) -> Audio:
    """Decode ``file`` from its start; one that ends early or is damaged is decoded as far as it goes.

    Args:
        file: a seekable binary file.
        rate: samples per second of the result.
        limits: what is accepted.

    Raises:
        UnsupportedFormatError: if the container, the codec, the channels or the sample rate are not supported.
        InvalidAudioError: if nothing decodes, or to samples that are no sound.
        AudioTooShortError: if it lasts less than ``limits.min_seconds``.
        AudioTooLongError: as soon as more than ``limits.max_seconds`` are decoded.
    """
    size = file.seek(0, SEEK_END)
    file.seek(0)
    head = file.read(HEAD_BYTES)
    file.seek(0)
    container = sniff(head)
    with Source.open(file, limits) as source:
        samples = np.concatenate(list(resampled(source.blocks(), source.rate, rate)) or [np.empty(0, np.float32)])
        _check_length(source, limits)
        return Audio(
            samples=samples,
            sample_rate=rate,
            seconds=source.seconds,
            container=container,
            channels=source.channels,
            source_rate=source.rate,
            truncated=source.ended_early or _is_cut_wav(head, size),
        )


def _check_length(source: Source, limits: AudioLimits) -> None:
    if source.frames == 0 and source.broken:
        raise InvalidAudioError("no audio could be decoded from the file: it is damaged")
    if source.seconds < limits.min_seconds:
        raise AudioTooShortError(
            f"the audio lasts {source.seconds:.3g} s, less than {limits.min_seconds:g} s, the least accepted"
        )


def _is_cut_wav(head: bytes, size: int) -> bool:
    """Whether a RIFF file is shorter than it says. libsndfile quietly takes what is there."""
    claimed = int.from_bytes(head[4:8], "little") + 8
    return head.startswith(b"RIFF") and size < claimed < _OPEN_WAV_SIZE
