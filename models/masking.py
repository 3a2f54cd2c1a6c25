"""Which positions of a padded batch hold something."""

import torch
from torch import Tensor


def valid_positions(lengths: Tensor, size: int) -> Tensor:
    """Return a bool mask [batch, size] that is true at the first ``lengths[b]`` positions of row ``b``."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]
