"""A forecast of an epoch, before it is computed."""

import numpy as np
from numpy.typing import ArrayLike

from training.sampler import BucketSampler


def forecast(sampler: BucketSampler, seconds: ArrayLike, labels: ArrayLike) -> str:
    """Return a line about the first epoch: its steps, clips and padding.

    Args:
        sampler: makes the batches.
        seconds: length of each take.
        labels: number of labels of each take.
    """
    epoch = sampler.epoch(0)
    clips = np.diff(epoch.part_starts)
    filled = clips > 0
    clips, first, bounds = clips[filled], epoch.part_starts[:-1][filled], epoch.part_seconds[filled]
    drawn = np.asarray(labels)[epoch.takes].astype(np.int64)
    audio, padded_audio = float(np.asarray(seconds)[epoch.takes].sum()), float(bounds @ clips)
    text = padded_text = 0
    if len(clips):
        text, padded_text = int(drawn.sum()), int(np.maximum.reduceat(drawn, first) @ clips)
    return (
        f"an epoch: {len(epoch):,} steps, {len(drawn) / max(1, len(clips)):.1f} clips a batch, "
        f"{len(np.unique(bounds))} lengths; "
        f"padding {_share(audio, padded_audio)} of the audio, {_share(text, padded_text)} of the labels"
    )


def _share(real: float, padded: float) -> str:
    return f"{100 * (1 - real / padded) if padded else 0:.1f} %"
