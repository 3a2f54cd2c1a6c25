"""What every reader of audio files offers: mono blocks, forward only, and what is known about them."""

from collections.abc import Iterator
from typing import Protocol

from audio.errors import InvalidAudioError
from audio.resample import Samples

# Full scale of 32-bit integers that were stored as floats; what is beyond it, or not a number, is no sound.
_LOUDEST = 2.0**31


class Source(Protocol):
    """An open audio file.

    Attributes:
        channels: channels of the file.
        rate: samples per second of the blocks.
        frames: frames decoded so far, one sample of each channel each.
        broken: whether decoding ended with an error.
    """

    channels: int
    rate: int
    frames: int
    broken: bool

    @property
    def seconds(self) -> float:
        """Length of what was decoded so far."""

    @property
    def ended_early(self) -> bool:
        """Whether the file is known to have ended before it should."""

    def blocks(self) -> Iterator[Samples]:
        """Yield the mean of the channels, a few seconds at a time at most, until the file ends or breaks.

        Raises:
            AudioError: as soon as a limit is passed, or samples are not finite numbers.
        """


def mean_of_channels(block: Samples) -> Samples:
    """Return ``block`` [frames, channels] as mono [frames].

    Raises:
        InvalidAudioError: if samples are not finite numbers.
    """
    if block.size and not (block.min() >= -_LOUDEST and block.max() <= _LOUDEST):
        raise InvalidAudioError("the audio holds samples that are infinite or not numbers")
    mono: Samples = block[:, 0] if block.shape[1] == 1 else block.mean(axis=1)
    return mono


def falls_short(claimed: float, decoded: float) -> bool:
    """Whether ``decoded`` seconds are fewer than a header ``claimed``; some headers only estimate, within this."""
    return claimed - decoded > max(0.1, 0.01 * decoded)
