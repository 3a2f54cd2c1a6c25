"""Other voices out of the same recording: its spectrum stretched, as by a shorter or a longer vocal tract.

Vocal tract length perturbation (Jaitly and Hinton, 2013), on mel bands instead of spectra. Nothing moves in time.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.config import FeatureConfig
from models.features import hz_of_mels, mels_of_hz

Mels = NDArray[np.float64]

# Up to here frequencies are stretched in proportion; from here to the highest, which stays, in a straight line.
_PROPORTIONAL_SHARE = 0.6


def stretched(features: Tensor, factors: Tensor, config: FeatureConfig) -> Tensor:
    """Move what is heard at a frequency to that frequency times its clip's factor.

    Args:
        features: log-mel features, [batch, mels, frames].
        factors: above 1 makes a voice higher, [batch], on the same device.
        config: where the bands are.

    Returns:
        The same shape; a band between two is interpolated, one below the lowest takes that one's place.
    """
    low, high = mels_of_hz(np.array([config.low_hz, config.high_hz]))
    centers = np.linspace(low, high, config.mels + 2)[1:-1]
    bands = np.array([_bands_heard(centers, factor, config.high_hz) for factor in factors.tolist()])
    heard = torch.from_numpy(bands).to(features).clamp(0, config.mels - 1)
    below = heard.floor().long().clamp(max=config.mels - 2)
    share = (heard - below)[:, :, None]
    lower, upper = (features.gather(1, (below + one)[:, :, None].expand_as(features)) for one in (0, 1))
    return lower + share * (upper - lower)


def _bands_heard(centers: Mels, factor: float, high_hz: float) -> Mels:
    """Return what each band, given by its centre in mels, is to hold: a position among the bands, from 0."""
    knee = _PROPORTIONAL_SHARE * high_hz * min(1.0, factor)
    wanted = np.interp(hz_of_mels(centers), [0.0, knee, high_hz], [0.0, knee / factor, high_hz])
    positions: Mels = (mels_of_hz(wanted) - centers[0]) / (centers[1] - centers[0])
    return positions
