"""Bringing quiet speech to the level at which a detector of speech was trained."""

import numpy as np

from audio.resample import Samples

# Mean power of speech as recordings have it, and the most that is made of less: what is 60 dB below is no speech.
_POWER = 10 ** (-23 / 10)
_MOST_GAIN = 10 ** (60 / 20)
_FRAME = 512
# A block whose speech is over, or weak, is not brought to the level of speech at once.
_FALL = 10 ** (-10 / 10)
_LOUD_SHARE = 0.9


class Level:
    """Raises the blocks of one recording, and removes what is constant in them; loud ones stay as they are."""

    def __init__(self) -> None:
        self._power = 0.0

    def raised(self, block: Samples) -> Samples:
        """Return the next block, mono, some seconds long, at the level of speech.

        Its level is the power of its louder frames, or what is left of the block before.
        """
        if not len(block):
            return block
        block = block - block.mean(dtype=np.float64).astype(np.float32)
        whole = len(block) // _FRAME * _FRAME
        frames = np.square(block[:whole]).reshape(-1, _FRAME).mean(axis=1) if whole else np.square(block)
        loud = float(np.quantile(frames, _LOUD_SHARE))
        self._power = max(loud, self._power * _FALL)
        if not 0 < self._power < _POWER:
            return block
        return block * np.float32(min(np.sqrt(_POWER / self._power), _MOST_GAIN))
