"""The interface of the readers of audio files, which yield blocks; and the mixing of channels."""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from audio.errors import InvalidAudioError
from audio.samples import Samples

# Full scale of 32-bit integers that were stored as floats. Larger values are not audio.
_LOUDEST = 2.0**31


Mix = Callable[[Samples], Samples]  # from a block [frames, channels] to [frames], or to the same block


class Source(Protocol):
    """An open audio file.

    Attributes:
        channels: channels of the file.
        rate: samples per second of the blocks.
        frames: frames decoded so far; a frame is one sample of each channel.
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
        """Yield the samples in blocks of bounded size, mixed by ``mix``, until the file ends or breaks.

        Raises:
            AudioError: as soon as a limit is passed.
        """


# If the mean of two channels has less than this share of the quieter one's power, one is the other inverted, as by a
# cable with swapped wires. Two microphones never cancel out that far, except in a few frames by chance.
_LEAST_SHARE = 0.01
_LEAST_FRAMES = 100


def mean_of_channels(block: Samples) -> Samples:
    """Return ``block`` [frames, channels] as mono [frames]: the mean, or the louder of two channels that cancel out."""
    if block.shape[1] == 1:
        return block[:, 0]
    with np.errstate(over="ignore", invalid="ignore"):  # of samples that will be refused
        mono: Samples = block.mean(axis=1)
        if block.shape[1] == 2 and len(block) >= _LEAST_FRAMES:
            powers = np.einsum("fc,fc->c", block, block)
            if mono @ mono < _LEAST_SHARE * powers.min():
                return np.ascontiguousarray(block[:, powers.argmax()])
    return mono


def every_channel(block: Samples) -> Samples:
    """Return ``block`` [frames, channels] as it is."""
    return block


def check_numbers(samples: Samples) -> None:
    """Refuse samples that are not audio, of any shape.

    Raises:
        InvalidAudioError: if one is no number or too large.
    """
    if samples.size and not (samples.min() >= -_LOUDEST and samples.max() <= _LOUDEST):
        raise InvalidAudioError("the audio holds samples that are not numbers, or too large")


def falls_short(claimed: float, decoded: float) -> bool:
    """Return whether clearly fewer seconds were decoded than a header claims; some headers only estimate."""
    return claimed - decoded > max(0.1, 0.01 * decoded)
