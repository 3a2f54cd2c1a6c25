"""What is known of a decoded file, and the passing on of its samples."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from audio.errors import InvalidAudioError
from audio.limits import AudioLimits
from audio.mixing import Mixer
from audio.resample import resampled
from audio.source import Source, check_track, every_channel

# Gets float32 samples as bytes, which it may keep, and their channel's number, from 0.
Sink = Callable[[bytes | memoryview, int], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a file."""

    rate: int  # samples per second of the result
    limits: AudioLimits = field(default_factory=AudioLimits)
    # Whether channels are kept apart; otherwise they are mixed to channel 0. Of a file with several tracks, each is a
    # channel, unless one is chosen.
    by_channel: bool = False
    track: int | None = None  # the audio track, from 1; None for the default one, or the first that is not silent


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that audio was decoded from."""

    seconds: float  # length of the decoded audio
    container: str  # one of ``audio.sniff.SUPPORTED``, or pcm for raw samples
    channels: int  # number of channels in the file
    source_rate: int  # sample rate of the file, in Hz
    truncated: bool  # whether the file is known to end before it should
    track: int = 1  # number of the audio track that was decoded, from 1; 0: all, as channels
    tracks: int = 1  # audio tracks in the file


def drain(source: Source, sink: Sink, container: str, wanted: Wanted) -> Origin:
    """Pass the samples of an open file to ``sink``, block by block.

    Raises:
        AudioError: as soon as a limit is passed; if there are no samples, or no such track.
    """
    check_track(wanted.track, source.tracks)
    mix = every_channel if wanted.by_channel else Mixer()
    for block in resampled(source.blocks(mix), source.rate, wanted.rate):
        for number, channel in enumerate(block.T if wanted.by_channel else (block,)):
            sink(np.ascontiguousarray(channel).view(np.uint8).data, number)
    if source.frames == 0 and source.broken:
        raise InvalidAudioError("no audio could be decoded from the file: it is damaged")
    wanted.limits.check_shortest(source.seconds)
    tracks = source.track, source.tracks
    return Origin(source.seconds, container, source.channels, source.rate, source.ended_early, *tracks)
