"""Masks of the valid positions of a padded batch."""

import torch
from torch import Tensor


def valid_positions(lengths: Tensor, size: int) -> Tensor:
    """Return a bool mask [batch, size] that is true at the first ``lengths[b]`` positions of row ``b``."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def unpadded(batch: Tensor, lengths: Tensor) -> list[Tensor]:
    """Return views of the rows of ``batch`` [batch, ..., size] without their padding; for a CPU, where this is free."""
    return [row[..., :length] for row, length in zip(batch, lengths.tolist(), strict=True)]
