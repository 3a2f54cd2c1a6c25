"""What every reader of audio files offers: blocks, forward only, and what is known about them."""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from audio.errors import InvalidAudioError
from audio.resample import Samples

# Full scale of 32-bit integers that were stored as floats; what is beyond it, or not a number, is no sound.
_LOUDEST = 2.0**31


Mix = Callable[[Samples], Samples]  # of a block [frames, channels]: to [frames], or each channel by itself


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

    def blocks(self, mix: Mix) -> Iterator[Samples]:
        """Yield what ``mix`` makes of the channels, a few seconds at a time at most, until the file ends or breaks.

        Raises:
            AudioError: as soon as a limit is passed, or samples are not finite numbers.
        """


# Of the power of two channels, what is left in their mean when one is the other turned upside down: no two
# microphones hear so little in common, and a cable with swapped wires does this.
_LEAST_SHARE = 0.01


def mean_of_channels(block: Samples) -> Samples:
    """Return ``block`` [frames, channels] as mono [frames]: the mean, or the louder one of two that cancel out.

    Raises:
        InvalidAudioError: if samples are not finite numbers.
    """
    block = every_channel(block)
    if block.shape[1] == 1:
        return block[:, 0]
    mono: Samples = block.mean(axis=1)
    if block.shape[1] == 2:
        powers = np.einsum("fc,fc->c", block, block)
        if mono @ mono < _LEAST_SHARE * powers.min():
            return np.ascontiguousarray(block[:, powers.argmax()])
    return mono


def every_channel(block: Samples) -> Samples:
    """Return ``block`` [frames, channels] as it is.

    Raises:
        InvalidAudioError: if samples are not finite numbers.
    """
    if block.size and not (block.min() >= -_LOUDEST and block.max() <= _LOUDEST):
        raise InvalidAudioError("the audio holds samples that are infinite or not numbers")
    return block


def falls_short(claimed: float, decoded: float) -> bool:
    """Whether ``decoded`` seconds are fewer than a header ``claimed``; some headers only estimate, within this."""
    return claimed - decoded > max(0.1, 0.01 * decoded)
