"""A forecast of an epoch and of a run, before they are computed."""

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from training.optimizer import Optimizers
from training.sampler import BucketSampler

_MEGA = 1e6


def forecast(sampler: BucketSampler, seconds: ArrayLike, labels: ArrayLike) -> str:
    """Return a line about the first epoch: its steps, clips and padding, of takes with these lengths and labels."""
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


def whole_run(sampler: BucketSampler, seconds: ArrayLike, steps: int) -> str:
    """Return a line about all steps of a run."""
    epoch = sampler.epoch(0)
    epochs = steps / max(1, len(epoch))
    hours = epochs * float(np.asarray(seconds)[epoch.takes].sum()) / 3600
    return f"{steps:,} steps are {epochs:,.1f} epochs, {hours:,.1f} h of audio"


def buckets(sampler: BucketSampler) -> list[str]:
    """Return a table of the buckets: their bounds, their clips, and the clips of a full batch."""
    rows = [
        f"{shape.seconds:7.1f} {shape.labels:7} {clips:9,} {batch:6}"
        for shape, clips, batch in sampler.buckets
        if clips
    ]
    return ["seconds  labels     clips  batch", *rows]


def model_memory(network: nn.Module, optimizer: Optimizers) -> str:
    """Return a line about the memory of a model in training, without what a batch takes."""
    state = sum(value.numel() * value.element_size() for value in network.state_dict().values())
    gradients = sum(value.numel() * value.element_size() for value in network.parameters() if value.requires_grad)
    total = (2 * state + gradients + optimizer.bytes) / _MEGA
    return (
        f"{total:,.0f} MB for weights, their average, gradients and the optimizer's state, in each process; "
        "--probe measures what batches take"
    )


def _share(real: float, padded: float) -> str:
    return f"{100 * (1 - real / padded) if padded else 0:.1f} %"
