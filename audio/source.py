"""The interface of the readers of audio files, which yield blocks; and the mixing of channels."""

from collections.abc import Callable, Iterator
from typing import Protocol

from audio.errors import UnsupportedFormatError
from audio.samples import Samples

# As a share of full scale. A line without a speaker sends zeros, or A-law and mu-law values of at most 8 of 32,768.
SILENCE = 2.0**-12


Mix = Callable[[Samples], Samples]  # from a block [frames, channels] to [frames], or to the same block


class Source(Protocol):
    """An open audio file."""

    channels: int  # channels of the file
    rate: int  # samples per second of the blocks
    frames: int  # frames decoded so far; a frame is one sample of each channel
    broken: bool  # whether decoding ended with an error
    track: int  # number of the audio track that is read, from 1
    tracks: int  # audio tracks of the file

    @property
    def seconds(self) -> float:
        """Length of what was decoded so far."""

    @property
    def ended_early(self) -> bool:
        """Whether the file is known to have ended before it should."""

    def blocks(self, mix: Mix) -> Iterator[Samples]:
        """Yield the samples in blocks of bounded size, mixed by ``mix``, until the file ends or breaks.

        Raises:
            AudioTooLongError: as soon as more than the limit is decoded.
        """


def every_channel(block: Samples) -> Samples:
    """Return ``block`` [frames, channels] as it is."""
    return block


def check_track(track: int | None, tracks: int) -> None:
    """Raise UnsupportedFormatError for a track, counted from 1, that a file with ``tracks`` does not have."""
    if track is not None and track > tracks:
        has = "one audio track" if tracks == 1 else f"{tracks} audio tracks"
        raise UnsupportedFormatError(f"the file has {has}; there is no track {track}")


def falls_short(claimed: float, decoded: float) -> bool:
    """Return whether clearly fewer seconds were decoded than a header claims; some headers only estimate."""
    return claimed - decoded > max(0.1, 0.01 * decoded)
