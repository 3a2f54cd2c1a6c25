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
from audio.limits import AudioLimits, check_form, check_numbers
from audio.mpeg import after_id3
from audio.origin import Origin, Sink, Wanted, drain
from audio.packets import PacketSource, check_same_channels, tracks_of
from audio.pcm import PcmSource
from audio.piece import Piece
from audio.reader import suits_libsndfile
from audio.samples import Samples
from audio.sniff import container_of
from audio.sound_file import Room, SoundFileSource, new_room
from audio.source import Source

# A longer tag of an MP3 is left out: libraries would hold it, and the picture in it, in memory several times.
_LONGEST_TAG = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Audio(Origin):
    """Decoded audio."""

    samples: Samples = field(kw_only=True)  # mean of the channels, float32 [n], full scale is 1


def decode(file: BinaryIO, *, rate: int, limits: AudioLimits) -> Audio:
    """Decode a seekable file from its start, up to where it ends early or is damaged, at ``rate`` samples a second.

    Raises:
        UnsupportedFormatError: if the container, the codec, the channels or the sample rate are not supported.
        InvalidAudioError: if nothing can be decoded, or samples are not finite numbers.
        AudioTooShortError: if the audio is shorter than ``limits.min_seconds``.
        AudioTooLongError: as soon as more than ``limits.max_seconds`` are decoded.
    """
    samples = bytearray()
    try:
        origin = decode_into(lambda block, _: samples.extend(block), file, Wanted(rate, limits))
    except MemoryError:
        raise InvalidAudioError("decoding the file takes more memory than there is") from None
    return Audio(samples=np.frombuffer(samples, dtype=np.float32), **asdict(origin))  # not copied


def decode_into(sink: Sink, file: BinaryIO, wanted: Wanted) -> Origin:
    """Decode as ``decode`` does, but pass the samples to ``sink`` block by block.

    Raises:
        AudioError: as ``decode``, perhaps after some blocks; where channels are kept apart, also if their
            number changes within the file.
        MemoryError: if decoding takes more memory than this process may have.
    """

    def checked(samples: bytes | memoryview, channel: int) -> None:
        check_numbers(np.frombuffer(samples, np.float32))
        sink(samples, channel)

    return decode_as(container_of(file), checked, file, wanted)


def decode_as(container: str, sink: Sink, file: BinaryIO, wanted: Wanted, room: Room = new_room) -> Origin:
    """Decode a file in this container as ``decode_into`` does; that samples are numbers is not checked.

    Where channels are mixed, ``room`` gives memory to decode into; it may be that of the sink.
    """
    header = riff.read_header(file) if container == "wav" else None
    may_have_tracks = wanted.by_channel and wanted.track is None and not suits_libsndfile(file, container)
    if may_have_tracks and (tracks := tracks_of(file, container)) > 1:
        return _tracks_as_channels(container, sink, file, wanted, tracks)
    if len(recordings := begins(file, container)) > 1:
        return _joined(recordings, container, sink, file, wanted)
    with _opened(file, container, header, wanted, new_room if wanted.by_channel else room) as source:
        origin = drain(source, sink, container, wanted)
        leaves_much, place = (source.leaves_much, source.place) if isinstance(source, SoundFileSource) else (False, 0)
    if container == "flac" and (recordings := flacs_behind(file, max(place, after_id3(file) + 1))):
        return _joined(recordings, container, sink, file, wanted, origin)
    # libsndfile reads all of these without an error.
    is_cut = leaves_much or (header is not None and (header.is_cut or header.is_followed))
    return replace(origin, truncated=True) if is_cut else origin


def _joined(
    recordings: list[int], container: str, sink: Sink, file: BinaryIO, wanted: Wanted, first: Origin | None = None
) -> Origin:
    """Decode the recordings that begin at these offsets, behind ``first``, up to one that does not decode.

    Raises:
        AudioError: what the first one is refused for.
    """
    limits, origin = wanted.limits, first
    for start, stop in pairwise([*recordings, file.seek(0, SEEK_END)]):
        piece = Piece(file, start, stop)
        seconds = origin.seconds if origin else 0.0
        left = replace(limits, max_seconds=limits.max_seconds - seconds, min_seconds=0.0)
        try:
            with PacketSource.open(piece, container, left, wanted.track) as source:
                if wanted.by_channel and origin:
                    check_same_channels(origin.channels, source.channels)
                one = drain(source, sink, container, replace(wanted, limits=left))
        except AudioTooLongError:
            most = limits.max_seconds
            raise AudioTooLongError(f"the audio is longer than {most:g} s, the most accepted") from None
        except InvalidAudioError:
            if origin is None:
                raise
            origin = replace(origin, truncated=True)
            break
        truncated = one.truncated or (container == "wav" and riff.read_header(piece).is_cut)
        base = origin or one
        origin = replace(base, seconds=seconds + one.seconds, truncated=base.truncated or truncated)
    assert origin is not None
    limits.check_shortest(origin.seconds)
    return origin


def _tracks_as_channels(container: str, sink: Sink, file: BinaryIO, wanted: Wanted, tracks: int) -> Origin:
    """Decode each track, mixed, as a channel; one that does not decode is silent, so that the others keep their number.

    Raises:
        AudioError: if none decodes.
    """
    limits = wanted.limits
    check_form(tracks, wanted.rate)
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
                origins.append(drain(source, take, container, Wanted(wanted.rate, limits)))
        except (InvalidAudioError, UnsupportedFormatError, AudioTooShortError) as error:
            failures.append(error)
        if not has_begun:
            sink(bytes(4 * math.ceil(limits.min_seconds * wanted.rate)), channel)
    if not origins:
        raise failures[0]
    longest = max(origins, key=lambda origin: origin.seconds)
    truncated = any(origin.truncated for origin in origins)
    return replace(longest, channels=tracks, truncated=truncated, track=0, tracks=tracks)


@contextmanager
def _opened(
    file: BinaryIO, container: str, header: riff.WavHeader | None, wanted: Wanted, room: Room
) -> Iterator[Source]:
    limits, track = wanted.limits, wanted.track
    if header is not None and header.pcm is not None:
        yield PcmSource(file, header.pcm, limits)
    elif container == "mp3" and (tag := after_id3(file)) > _LONGEST_TAG:
        with PacketSource.open(Piece(file, tag), container, limits, track) as packets:
            yield packets
    elif suits_libsndfile(file, container):
        if container == "ogg":
            limits.check_decoded(*ogg.vorbis_frames(file), channels=1)
            file.seek(0)
        with SoundFileSource.open(file, limits, room) as sound:
            yield sound
    else:
        with PacketSource.open(file, container, limits, track) as packets:
            yield packets
