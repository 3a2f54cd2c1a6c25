"""Resampling block by block: a recording need not be whole in memory."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import soxr

from audio.samples import Samples


def resampled(blocks: Iterable[Samples], source_rate: int, rate: int) -> Iterator[Samples]:
    """Yield ``blocks``, [frames] or [frames, channels], at ``rate``; equal rates pass through untouched.

    Each channel is resampled independently of the others.

    The filter is soxr's HQ: flat to 0.9 of the lower Nyquist frequency, and what lies above it is at least 100 dB down.
    """
    if source_rate == rate:
        yield from blocks
        return
    stream: soxr.ResampleStream | None = None
    shape: tuple[int, ...] = ()  # shape of a frame
    for block in blocks:
        if stream is None:
            shape = block.shape[1:]
            stream = soxr.ResampleStream(
                source_rate, rate, num_channels=math.prod(shape), dtype="float32", quality="HQ"
            )
        yield stream.resample_chunk(block)
    if stream is not None:
        yield stream.resample_chunk(np.empty((0, *shape), dtype=np.float32), last=True)
