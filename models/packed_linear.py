"""Products whose weights lie as oneDNN reads them fastest, for inference on a CPU.

An ordinary product lays its weights out anew at every call, which shows where it has few rows; and where MKL does not
know the processor, oneDNN has the faster kernels besides.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from models.cpu import fuses_swish_well, pack, packed_product

Activation = Literal["none", "relu", "swish"]

# Weights from which on it is worth the call, which takes longer than an ordinary one.
_LEAST_WEIGHTS = 2**18


class PackedLinear(nn.Module):
    """Gives what an ``nn.Linear`` of the same weights gives, and applies an activation.

    It does so in the same pass where that is faster.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none") -> None:
        """Take over ``weight`` [outputs, inputs] and ``bias`` [outputs], of a dtype that ``cpu.can_pack`` knows."""
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", pack(weight.detach()), persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)
        # In bfloat16 a Swish of its own would be one of rounded values.
        self._is_apart = activation == "swish" and weight.dtype is torch.float32 and not fuses_swish_well()
        self._activation = "none" if self._is_apart else activation

    @classmethod
    def of(cls, linear: nn.Linear, activation: Activation = "none") -> "PackedLinear":
        """Return what takes the place of ``linear``."""
        return cls(linear.weight, linear.bias, activation)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product [..., outputs] for ``inputs`` [..., inputs]."""
        product = packed_product(inputs, self.weight, self.bias, self._activation)
        return silu(product, inplace=True) if self._is_apart else product


def is_worth_packing(weight: Tensor) -> bool:
    """Return whether there is enough of it."""
    return weight.numel() >= _LEAST_WEIGHTS
