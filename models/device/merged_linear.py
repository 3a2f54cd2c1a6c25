"""Several products of the same inputs merged into one, for inference: one kernel, which reads the inputs once."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


@torch.no_grad()
def merged_linear(parts: Sequence[nn.Linear]) -> nn.Linear:
    """Return the layer whose outputs are those of ``parts``, side by side; all parts have a bias, or none has."""
    with torch.device("meta"):  # its weights are assigned below
        merged = nn.Linear(1, 1)
    merged.weight = nn.Parameter(torch.cat([part.weight for part in parts]))
    biases: list[Tensor] = [part.bias for part in parts if part.bias is not None]
    merged.bias = nn.Parameter(torch.cat(biases)) if biases else None  # type: ignore[assignment]  # may be None
    return merged
