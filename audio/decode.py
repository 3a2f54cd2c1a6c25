"""Decode a file to samples at one rate, within limits and in bounded memory.

Limits apply to the decoded samples, because the length in a header may be wrong. libsndfile, FFmpeg and soxr release
the interpreter lock while they work, so several threads can decode at the same time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import BinaryIO

import numpy as np

from audio import riff
from audio.errors import InvalidAudioError
from audio.limits import AudioLimits
from audio.mpeg import after_id3
from audio.pcm import PcmSource
from audio.raw import RawFormat
from audio.reader import Reader, reader_of
from audio.resample import resampled
from audio.samples import Samples
from audio.sniff import HEAD_BYTES, STREAM_BYTES, sniff, sniff_behind_tag
from audio.sound_file import SoundFileSource
from audio.source import Source, every_channel, mean_of_channels

RAW = "pcm"

Sink = Callable[[bytes | memoryview, int], None]  # gets float32 samples as bytes, and their channel's number, from 0


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that audio was decoded from.

    Attributes:
        seconds: length of the decoded audio.
        container: one of ``audio.sniff.SUPPORTED``, or pcm for raw samples.
        channels: number of channels in the file.
        source_rate: sample rate of the file, in Hz.
        truncated: whether the file is known to end before it should.
    """

    seconds: float
    container: str
    channels: int
    source_rate: int
    truncated: bool


@dataclass(frozen=True, slots=True, eq=False)
class Audio(Origin):
    """Decoded audio.

    Attributes:
        samples: mean of the channels, float32 [n], full scale is 1.
    """

    samples: Samples


def decode(file: BinaryIO, *, rate: int, limits: AudioLimits, raw: RawFormat | None = None) -> Audio:
    """Decode ``file`` from its start, up to where it ends early or is damaged.

    The decoder runs in this process; for untrusted files, use ``audio.pool``.

    Args:
        file: a seekable binary file.
        rate: samples per second of the result.
        limits: what is accepted.
        raw: for a file of 16-bit PCM without a header, its format.

    Raises:
        UnsupportedFormatError: if the container, the codec, the channels or the sample rate are not supported.
        InvalidAudioError: if nothing can be decoded, or samples are not finite numbers.
        AudioTooShortError: if the audio is shorter than ``limits.min_seconds``.
        AudioTooLongError: as soon as more than ``limits.max_seconds`` are decoded.
    """
    samples = bytearray()
    try:
        origin = decode_into(lambda block, _: samples.extend(block), file, rate=rate, limits=limits, raw=raw)
    except MemoryError:
        raise InvalidAudioError("decoding the file takes more memory than there is") from None
    return Audio(samples=np.frombuffer(samples, dtype=np.float32), **asdict(origin))  # not copied


def decode_into(
    sink: Sink,
    file: BinaryIO,
    *,
    rate: int,
    limits: AudioLimits,
    raw: RawFormat | None = None,
    by_channel: bool = False,
) -> Origin:
    """Decode as ``decode`` does, but pass the samples to ``sink`` block by block.

    Args:
        sink: called for each block; with ``by_channel``, for each channel of each block.
        file: a seekable binary file.
        rate: samples per second of the blocks.
        limits: what is accepted.
        raw: for a file of 16-bit PCM without a header, its format.
        by_channel: keep the channels apart; otherwise they are mixed to channel 0.

    Raises:
        AudioError: as ``decode``, perhaps after some blocks; with ``by_channel``, also if the number of channels
            changes within the file.
        MemoryError: if decoding takes more memory than this process may have.
    """
    if raw is not None:
        file.seek(0)
        with SoundFileSource.open(file, limits, raw) as source:
            return _drain(source, sink, RAW, rate, limits, by_channel=by_channel)
    container = container_of(file)
    reader = reader_of(file, container)
    return decode_by(reader, sink, file, container, rate=rate, limits=limits, by_channel=by_channel)


def decode_by(
    reader: Reader, sink: Sink, file: BinaryIO, container: str, *, rate: int, limits: AudioLimits, by_channel: bool
) -> Origin:
    """Decode as ``decode_into`` does, with the results of ``container_of`` and ``reader_of``."""
    header = riff.read_header(file) if container == "wav" else None
    file.seek(0)
    with _opened(reader, file, container, header, limits) as source:
        origin = _drain(source, sink, container, rate, limits, by_channel=by_channel)
    is_cut = header is not None and header.is_cut  # libsndfile reads a cut file without an error
    return replace(origin, truncated=origin.truncated or is_cut)


def container_of(file: BinaryIO) -> str:
    """Recognise the container of ``file`` by its content, and seek back to the start.

    Raises:
        UnsupportedFormatError: if the container is not supported.
        InvalidAudioError: if the file is empty.
    """
    file.seek(0)
    container = sniff(file.read(STREAM_BYTES))
    if container == "mp3" and (tag_bytes := after_id3(file)):
        file.seek(tag_bytes)
        container = sniff_behind_tag(file.read(HEAD_BYTES))
    file.seek(0)
    return container


@contextmanager
def _opened(
    reader: Reader, file: BinaryIO, container: str, header: riff.WavHeader | None, limits: AudioLimits
) -> Iterator[Source]:
    if header is not None and header.pcm is not None:
        yield PcmSource(file, header.pcm, limits)
    elif reader is Reader.LIBSNDFILE:
        with SoundFileSource.open(file, limits) as sound:
            yield sound
    else:
        from audio.packets import PacketSource  # slow to import

        with PacketSource.open(file, container, limits) as packets:
            yield packets


def _drain(source: Source, sink: Sink, container: str, rate: int, limits: AudioLimits, *, by_channel: bool) -> Origin:
    for block in resampled(source.blocks(every_channel if by_channel else mean_of_channels), source.rate, rate):
        for number, channel in enumerate(block.T if by_channel else (block,)):
            sink(np.ascontiguousarray(channel).view(np.uint8).data, number)
    if source.frames == 0 and source.broken:
        raise InvalidAudioError("no audio could be decoded from the file: it is damaged")
    limits.check_shortest(source.seconds)
    return Origin(
        seconds=source.seconds,
        container=container,
        channels=source.channels,
        source_rate=source.rate,
        truncated=source.ended_early,
    )
