"""Bringing quiet speech to the level that the speech detector and the models were trained at."""

import numpy as np

from audio.samples import Samples

# Usual mean power of speech, and the highest gain: what is 60 dB below speech is no speech.
_POWER = 10 ** (-23 / 10)
_MOST_GAIN = 10 ** (60 / 20)
_FRAME = 512
# The level falls by at most this from block to block, so that a block whose speech is over is not raised at once.
_FALL = 10 ** (-10 / 10)
_LOUD_SHARE = 0.9
# Mu-law has steps of 8 of 32,768 around zero, and none of speech this quiet is left between its peaks: to the detector
# those are clicks. In noise that hides the steps they are a voice again.
_COARSE = 10 ** (-60 / 10)
_NOISE = 10 ** (-18 / 10)  # as a share of the power
# Models add 2^-24 to the power of a band before they take its logarithm, which hides the weak bands of quieter speech.
_HIDDEN = 10 ** (-40 / 10)


class Level:
    """Removes the constant part of each block of one recording, and raises quiet blocks."""

    def __init__(self) -> None:
        self._power = 0.0
        self._random = np.random.default_rng(0)

    def raised(self, block: Samples) -> Samples:
        """Return the next block, mono, some seconds long, raised to the level of speech.

        Its level is the power of its louder frames, or the decayed level of the block before, whichever is higher.
        """
        if not len(block):
            return block
        block = block - block.mean(dtype=np.float64).astype(np.float32)
        self._power = max(_loud_power(block), self._power * _FALL)
        if not 0 < self._power < _POWER:
            return block
        if self._power < _COARSE:
            block = block + self._random.standard_normal(len(block), np.float32) * np.float32(
                np.sqrt(_NOISE * self._power)
            )
        return block * np.float32(min(np.sqrt(_POWER / self._power), _MOST_GAIN))


def audible(utterance: Samples) -> Samples:
    """Return an utterance, mono, raised to the level of speech if a model's features would hide a part of it.

    No sample is raised beyond -1 to 1.
    """
    if not len(utterance) or not 0 < (power := _loud_power(utterance)) < _HIDDEN:
        return utterance
    return utterance * np.float32(max(1.0, min(np.sqrt(_POWER / power), _MOST_GAIN, 1 / np.abs(utterance).max())))


def _loud_power(samples: Samples) -> float:
    """Return the power of the louder frames."""
    whole = len(samples) // _FRAME * _FRAME
    frames = np.square(samples[:whole]).reshape(-1, _FRAME).mean(axis=1) if whole else np.square(samples)
    return float(np.sort(frames)[int(_LOUD_SHARE * (len(frames) - 1))])  # np.quantile takes twenty times as long
