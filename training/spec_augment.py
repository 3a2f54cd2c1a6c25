"""SpecAugment (Park et al., 2019): bands of the features and stretches of time that a model has to do without.

Without the time warp, which the authors found to matter least.
"""

import numpy as np
from numpy.typing import NDArray

from training.recipe import SpecAugment

Mask = NDArray[np.bool_]


def draw_masks(frames: int, mels: int, config: SpecAugment, random: np.random.Generator) -> tuple[Mask, Mask]:
    """Draw what to hide of a clip.

    Args:
        frames: features of the clip, without padding.
        mels: bands of its features.
        config: how many masks, and how wide.
        random: where the choices come from.

    Returns:
        The frames to hide, [frames], and the bands to hide, [mels]. Hidden features become 0, which is the mean of
        their band.
    """
    hidden_frames, hidden_mels = np.zeros(frames, dtype=np.bool_), np.zeros(mels, dtype=np.bool_)
    for _ in range(config.time_masks):
        _hide(hidden_frames, int(config.time_share * frames), random)
    for _ in range(config.mel_masks):
        _hide(hidden_mels, config.mel_width, random)
    return hidden_frames, hidden_mels


def _hide(mask: Mask, widest: int, random: np.random.Generator) -> None:
    """Hide a stretch of ``mask``, of any width up to ``widest`` and anywhere."""
    width = int(random.integers(0, min(widest, len(mask)) + 1))
    start = int(random.integers(0, len(mask) - width + 1))
    mask[start : start + width] = True
