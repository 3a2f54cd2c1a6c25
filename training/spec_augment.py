"""SpecAugment (Park et al., 2019): masking bands and time spans of the features.

There is no time warp, which the authors found to matter least.
"""

import numpy as np
from numpy.typing import NDArray

from training.recipe_augmentation import SpecAugment

Mask = NDArray[np.bool_]


def draw_masks(frames: int, mels: int, config: SpecAugment | None, random: np.random.Generator) -> tuple[Mask, Mask]:
    """Return the frames of a clip to mask, [frames], and the bands, [mels]; none without ``config``.

    Masked features become 0, the mean of their band.
    """
    masked_frames, masked_mels = np.zeros(frames, dtype=np.bool_), np.zeros(mels, dtype=np.bool_)
    if config is None:
        return masked_frames, masked_mels
    for _ in range(config.time_masks):
        _hide(masked_frames, int(config.time_share * frames), random)
    for _ in range(config.mel_masks):
        _hide(masked_mels, config.mel_width, random)
    return masked_frames, masked_mels


def _hide(mask: Mask, widest: int, random: np.random.Generator) -> None:
    """Mask a random span of ``mask``, of any width up to ``widest``."""
    width = int(random.integers(0, min(widest, len(mask)) + 1))
    start = int(random.integers(0, len(mask) - width + 1))
    mask[start : start + width] = True
