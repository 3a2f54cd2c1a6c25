"""Products with weights in oneDNN's own layout, for inference on a CPU.

An ordinary product converts its weights at each call, which takes a large share of the time if it has few rows. Where
MKL has no kernels for the processor, oneDNN's are faster too.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from models.device.cpu import fuses_swish_well, pack, packed_product

Activation = Literal["none", "relu", "swish"]

# Fewer weights are not worth it, because the call takes longer than an ordinary one.
_LEAST_WEIGHTS = 2**15


class PackedLinear(nn.Module):
    """An ``nn.Linear`` and an activation after it, in one pass where that is faster."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none") -> None:
        """Take over ``weight`` [outputs, inputs] and ``bias`` [outputs], of a dtype that ``cpu.can_pack`` allows."""
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", pack(weight.detach()), persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)
        # In bfloat16, a separate Swish would get rounded values.
        self._is_apart = activation == "swish" and weight.dtype is torch.float32 and not fuses_swish_well()
        self._activation = "none" if self._is_apart else activation

    @classmethod
    def of(cls, linear: nn.Linear, activation: Activation = "none") -> "PackedLinear":
        """Return the replacement of ``linear``."""
        return cls(linear.weight, linear.bias, activation)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product [..., outputs] for ``inputs`` [..., inputs]."""
        product = packed_product(inputs, self.weight, self.bias, self._activation)
        return silu(product, inplace=True) if self._is_apart else product


def is_worth_packing(weight: Tensor) -> bool:
    """Return whether a weight is large enough to be packed."""
    return weight.numel() >= _LEAST_WEIGHTS
