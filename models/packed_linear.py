"""Products whose weights lie as oneDNN reads them fastest, for inference on a CPU.

An ordinary product lays its weights out anew at every call, which shows where it has few rows; and where MKL does not
know the processor, oneDNN has the faster kernels besides.
"""

from typing import Literal

from torch import Tensor, nn

from models.cpu import pack, packed_product

Activation = Literal["none", "relu", "swish"]

# Weights from which on it is worth the call, which takes longer than an ordinary one.
_LEAST_WEIGHTS = 2**18


class PackedLinear(nn.Module):
    """Gives what an ``nn.Linear`` of the same weights gives, and applies an activation in the same pass."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none") -> None:
        """Take over ``weight`` [outputs, inputs] and ``bias`` [outputs], of a dtype that ``cpu.can_pack`` knows."""
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", pack(weight.detach()), persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)
        self._activation = activation

    @classmethod
    def of(cls, linear: nn.Linear, activation: Activation = "none") -> "PackedLinear":
        """Return what takes the place of ``linear``."""
        return cls(linear.weight, linear.bias, activation)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product [..., outputs] for ``inputs`` [..., inputs]."""
        return packed_product(inputs, self.weight, self.bias, self._activation)


def is_worth_packing(weight: Tensor) -> bool:
    """Return whether there is enough of it."""
    return weight.numel() >= _LEAST_WEIGHTS
