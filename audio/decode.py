"""Decode a file to samples at one rate in this process, within limits and in bounded memory.

For recordings that are trusted, as those to train with, and for the child that `audio.pool` confines. Limits apply to
the decoded samples, because the length in a header may be wrong.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from os import SEEK_END
from typing import BinaryIO

import numpy as np

from audio import ogg, riff
from audio.errors import AudioTooLongError, AudioTooShortError, InvalidAudioError, UnsupportedFormatError
from audio.joined import begins, flacs_behind
from audio.limits import AudioLimits
from audio.mpeg import after_id3
from audio.origin import Origin, Sink, drain
from audio.packets import PacketSource, tracks_of
from audio.pcm import RAW, PcmSource
from audio.piece import Piece
from audio.raw import RawFormat
from audio.reader import Reader, reader_of
from audio.samples import Samples
from audio.sniff import container_of
from audio.sound_file import Room, SoundFileSource, new_room
from audio.source import Source, check_numbers, check_track

# A longer tag of an MP3 is left out: libraries would hold it, and the picture in it, in memory several times.
_LONGEST_TAG = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Audio(Origin):
    """Decoded audio.

    Attributes:
        samples: mean of the channels, float32 [n], full scale is 1.
    """

    samples: Samples = field(kw_only=True)


def decode(file: BinaryIO, *, rate: int, limits: AudioLimits, raw: RawFormat | None = None) -> Audio:
    """Decode ``file`` from its start, up to where it ends early or is damaged.

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
    track: int | None = None,
) -> Origin:
    """Decode as ``decode`` does, but pass the samples to ``sink`` block by block.

    Args:
        sink: called for each block; with ``by_channel``, for each channel of each block.
        file: a seekable binary file.
        rate: samples per second of the blocks.
        limits: what is accepted.
        raw: for a file of 16-bit PCM without a header, its format.
        by_channel: keep the channels apart; otherwise they are mixed to channel 0. Of a file with several tracks, each
            is a channel, unless one is chosen.
        track: the audio track, from 1; None for the default one, or the first that is not silent.

    Raises:
        AudioError: as ``decode``, perhaps after some blocks; with ``by_channel``, also if the number of channels
            changes within the file.
        MemoryError: if decoding takes more memory than this process may have.
    """

    def checked(samples: bytes | memoryview, channel: int) -> None:
        check_numbers(np.frombuffer(samples, np.float32))
        sink(samples, channel)

    if raw is not None:
        check_track(track, 1)
        return drain(PcmSource.raw(file, raw, limits), sink, RAW, rate, limits, by_channel=by_channel)
    return decode_as(container_of(file), checked, file, rate=rate, limits=limits, by_channel=by_channel, track=track)


def decode_as(
    container: str,
    sink: Sink,
    file: BinaryIO,
    *,
    rate: int,
    limits: AudioLimits,
    by_channel: bool,
    track: int | None = None,
    room: Room = new_room,
) -> Origin:
    """Decode a file in this container as ``decode_into`` does; that samples are numbers is not checked.

    Where channels are mixed, ``room`` gives memory to decode into; it may be that of the sink.
    """
    header = riff.read_header(file) if container == "wav" else None
    may_have_tracks = by_channel and track is None and reader_of(file, container) is Reader.FFMPEG
    if may_have_tracks and (tracks := tracks_of(file, container)) > 1:
        return _tracks_as_channels(container, sink, file, rate, limits, tracks)
    rest = _Rest(container, sink, file, rate, limits, by_channel, track)
    if len(recordings := begins(file, container)) > 1:
        return rest.read(recordings)
    with _opened(file, container, header, limits, track, new_room if by_channel else room) as source:
        origin = drain(source, sink, container, rate, limits, by_channel=by_channel)
        if isinstance(source, PacketSource):
            origin = replace(origin, track=source.track, tracks=source.tracks)
        place = source.place if isinstance(source, SoundFileSource) and container == "flac" else None
    if place is not None and (recordings := flacs_behind(file, max(place, after_id3(file) + 1))):
        return rest.read(recordings, origin)
    is_cut = header is not None and (header.is_cut or header.is_followed)  # libsndfile reads these without an error
    return replace(origin, truncated=origin.truncated or is_cut)


@dataclass(frozen=True, slots=True)
class _Rest:
    """Decodes the recordings of a joined file, one behind the other; see ``decode_as``."""

    container: str
    sink: Sink
    file: BinaryIO
    rate: int
    limits: AudioLimits
    by_channel: bool
    track: int | None

    def read(self, recordings: list[int], first: Origin | None = None) -> Origin:
        """Decode those that begin at these offsets behind ``first``, up to one that does not decode.

        Raises:
            AudioError: as ``decode_into``; what the first one is refused for.
        """
        origin = first
        for start, stop in pairwise([*recordings, self.file.seek(0, SEEK_END)]):
            piece = Piece(self.file, start, stop)
            seconds = origin.seconds if origin else 0.0
            left = replace(self.limits, max_seconds=self.limits.max_seconds - seconds, min_seconds=0.0)
            try:
                one = self._one(piece, left, origin)
            except AudioTooLongError:
                most = self.limits.max_seconds
                raise AudioTooLongError(f"the audio is longer than {most:g} s, the most accepted") from None
            except InvalidAudioError:
                if origin is None:
                    raise
                origin = replace(origin, truncated=True)
                break
            truncated = one.truncated or (self.container == "wav" and riff.read_header(piece).is_cut)
            base = origin or one
            origin = replace(base, seconds=seconds + one.seconds, truncated=base.truncated or truncated)
        assert origin is not None
        self.limits.check_shortest(origin.seconds)
        return origin

    def _one(self, piece: Piece, limits: AudioLimits, before: Origin | None) -> Origin:
        with PacketSource.open(piece, self.container, limits, self.track) as source:
            if self.by_channel and before and source.channels != before.channels:
                message = f"the file has {before.channels} channels and later {source.channels}"
                raise UnsupportedFormatError(f"{message}: they cannot be kept apart")
            origin = drain(source, self.sink, self.container, self.rate, limits, by_channel=self.by_channel)
            return replace(origin, track=source.track, tracks=source.tracks)


def _tracks_as_channels(
    container: str, sink: Sink, file: BinaryIO, rate: int, limits: AudioLimits, tracks: int
) -> Origin:
    """Decode each track, mixed, as a channel; one that does not decode is silent, so that the others keep their number.

    Raises:
        AudioError: if none decodes.
    """
    limits.check_form(tracks, limits.min_rate)
    origins: list[Origin] = []
    failures: list[Exception] = []
    for channel in range(tracks):
        has_begun = False

        def take(samples: bytes | memoryview, _: int, channel: int = channel) -> None:
            nonlocal has_begun
            has_begun = True
            sink(samples, channel)

        try:
            with PacketSource.open(file, container, limits, channel + 1) as source:
                origins.append(drain(source, take, container, rate, limits, by_channel=False))
        except (InvalidAudioError, UnsupportedFormatError, AudioTooShortError) as error:
            failures.append(error)
        if not has_begun:
            sink(bytes(4 * math.ceil(limits.min_seconds * rate)), channel)
    if not origins:
        raise failures[0]
    longest = max(origins, key=lambda origin: origin.seconds)
    truncated = any(origin.truncated for origin in origins)
    return replace(longest, channels=tracks, truncated=truncated, track=0, tracks=tracks)


@contextmanager
def _opened(
    file: BinaryIO, container: str, header: riff.WavHeader | None, limits: AudioLimits, track: int | None, room: Room
) -> Iterator[Source]:
    if header is not None and header.pcm is not None:
        check_track(track, 1)
        yield PcmSource(file, header.pcm, limits)
    elif container == "mp3" and (tag := after_id3(file)) > _LONGEST_TAG:
        with PacketSource.open(Piece(file, tag), container, limits, track) as packets:
            yield packets
    elif reader_of(file, container) is Reader.LIBSNDFILE:
        check_track(track, 1)
        if container == "ogg":
            limits.check_decoded(*ogg.vorbis_frames(file), channels=1)
            file.seek(0)
        with SoundFileSource.open(file, limits, room) as sound:
            yield sound
    else:
        with PacketSource.open(file, container, limits, track) as packets:
            yield packets
