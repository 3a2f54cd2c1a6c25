"""Masks of the valid positions of a padded batch."""

import torch
from torch import Tensor


def valid_positions(lengths: Tensor, size: int) -> Tensor:
    """Return a bool mask [batch, size] that is true at the first ``lengths[b]`` positions of row ``b``."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def additive_mask(masked: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to attention scores: 0, but half the lowest number of ``dtype`` where ``masked`` is true.

    It is finite, also after it was added, so that a softmax over masked positions alone gives numbers. Beside others
    their weight is 0. In float16, the lowest number itself would be infinite after a score of -20 was added.
    """
    return torch.zeros_like(masked, dtype=dtype).masked_fill_(masked, torch.finfo(dtype).min / 2)


def unpadded(batch: Tensor, lengths: Tensor) -> list[Tensor]:
    """Return views of the rows of ``batch`` [batch, ..., size] without their padding; for a CPU, where this is free."""
    return [row[..., :length] for row, length in zip(batch, lengths.tolist(), strict=True)]
