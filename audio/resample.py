"""Resampling block by block, so that memory does not grow with the source's rate."""

from collections.abc import Iterable, Iterator

import numpy as np
import soxr
from numpy.typing import NDArray

Samples = NDArray[np.float32]


def resampled(blocks: Iterable[Samples], source_rate: int, rate: int) -> Iterator[Samples]:
    """Yield the mono ``blocks`` at ``rate``; equal rates pass through untouched.

    The filter is soxr's HQ: flat to 0.9 of the lower Nyquist frequency, and what lies above it is at least 100 dB down.
    """
    if source_rate == rate:
        yield from blocks
        return
    stream = soxr.ResampleStream(source_rate, rate, num_channels=1, dtype="float32", quality="HQ")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.empty(0, dtype=np.float32), last=True)
