"""From several channels to one: their mean, or the loudest where they cancel each other out."""

import numpy as np

from audio.samples import Samples

# Channels cancel out where one is another inverted, as by a cable with swapped wires. Then the mean has less than this
# share of the loudest one's power; of eight channels of which one speaks it has more.
_LEAST_SHARE = 0.01
# The mean is taken again where it has this share, so that the sound does not flap between the two.
_USUAL_SHARE = 0.1
# Frames that are decided together: half a second at 16 kHz, less at higher rates. One wavelength may cancel by chance.
_PIECE = 1 << 13
_LEAST_FRAMES = 100


class Mixer:
    """Mixes the blocks of a recording, one after another; an ``audio.source.Mix``."""

    def __init__(self) -> None:
        self._loudest: int | None = None  # the channel that is taken instead of the mean

    def __call__(self, block: Samples) -> Samples:
        """Return ``block`` [frames, channels] as mono [frames]."""
        if block.shape[1] == 1:
            return block[:, 0]
        with np.errstate(over="ignore", invalid="ignore"):  # of samples that will be refused
            mono: Samples = block.mean(axis=1)
            for start in range(0, len(block), _PIECE):
                piece = block[start : start + _PIECE]
                self._choose(mono[start : start + _PIECE], piece)
                if self._loudest is not None:
                    mono[start : start + _PIECE] = piece[:, self._loudest]
        return mono

    def _choose(self, mean: Samples, piece: Samples) -> None:
        """Choose between the mean and the loudest channel; a short or silent piece decides nothing."""
        if self._loudest is not None and self._loudest >= piece.shape[1]:
            self._loudest = None
        if len(piece) < _LEAST_FRAMES:
            return
        powers = np.einsum("fc,fc->c", piece, piece)
        loudest = int(powers.argmax())
        share = _LEAST_SHARE if self._loudest is None else _USUAL_SHARE
        if powers[loudest] > 0:
            is_cancelled = mean @ mean < share * powers[loudest]
            if not is_cancelled:
                self._loudest = None
            elif self._loudest is None or powers[self._loudest] < _USUAL_SHARE * powers[loudest]:
                self._loudest = loudest
