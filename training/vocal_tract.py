"""Vocal tract length perturbation (Jaitly and Hinton, 2013): higher or lower voices by stretching the spectrum.

It is applied to mel bands instead of spectra. Nothing moves in time.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.config import FeatureConfig
from models.features import hz_of_mels, mels_of_hz
from training.recipe_augmentation import VocalTract

Mels = NDArray[np.float64]

# Frequencies up to this share of the highest are stretched in proportion; above it linearly, so that the highest stays.
_PROPORTIONAL_SHARE = 0.6


def drawn_stretch(config: VocalTract | None, random: np.random.Generator) -> float:
    """Draw a factor of the frequencies, uniform on a logarithmic scale; 1 without ``config``."""
    return 1.0 if config is None else float(np.exp(random.uniform(*np.log(config.factors))))


def stretched(features: Tensor, factors: Tensor, config: FeatureConfig) -> Tensor:
    """Multiply the frequencies of log-mel features, [batch, mels, frames], by a factor for each clip, on the host.

    A factor above 1 makes a voice higher. Features are interpolated between bands, whose frequencies ``config`` says;
    beyond the outermost bands their values are used.
    """
    low, high = mels_of_hz(np.array([config.low_hz, config.high_hz]))
    centers = np.linspace(low, high, config.mels + 2)[1:-1]
    bands = np.array([_bands_heard(centers, factor, config.high_hz) for factor in factors.tolist()])
    result = torch.from_numpy(bands).to(features, non_blocking=True).clamp(0, config.mels - 1)
    below = result.floor().long().clamp(max=config.mels - 2)
    share = (result - below)[:, :, None]
    lower, upper = (features.gather(1, (below + one)[:, :, None].expand_as(features)) for one in (0, 1))
    return lower + share * (upper - lower)


def _bands_heard(centers: Mels, factor: float, high_hz: float) -> Mels:
    """Return where among the bands, counted from 0, each band finds its value; ``centers`` are theirs in mels."""
    knee = _PROPORTIONAL_SHARE * high_hz * min(1.0, factor)
    wanted = np.interp(hz_of_mels(centers), [0.0, knee, high_hz], [0.0, knee / factor, high_hz])
    positions: Mels = (mels_of_hz(wanted) - centers[0]) / (centers[1] - centers[0])
    return positions
