"""Products whose weights lie as oneDNN reads them fastest, for inference on a CPU.

An ordinary product lays its weights out anew at every call, which shows where it has few rows; and where MKL does not
know the processor, oneDNN has the faster kernels besides.
"""

from typing import Literal

import torch
from torch import Tensor, nn

Activation = Literal["none", "relu", "swish"]

# Weights from which on it is worth the call, which takes longer than an ordinary one.
_LEAST_WEIGHTS = 2**18


class PackedLinear(nn.Module):
    """Gives what an ``nn.Linear`` of the same weights gives, and applies an activation in the same pass."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none") -> None:
        """Take over ``weight`` [outputs, inputs] and ``bias`` [outputs], on a CPU."""
        super().__init__()
        # Neither public nor in every build (see `can_pack`): torch's compiler makes its own products with these two.
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())  # noqa: SLF001
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", packed, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)
        self._activation = activation

    @classmethod
    def of(cls, linear: nn.Linear, activation: Activation = "none") -> "PackedLinear":
        """Return what takes the place of ``linear``."""
        return cls(linear.weight, linear.bias, activation)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product [..., outputs] for ``inputs`` [..., inputs]."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(  # noqa: SLF001
            inputs, self.weight, self.bias, self._activation, [], ""
        )
        return product


def can_pack() -> bool:
    """Return whether this build of torch has such products."""
    has_kernels: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_kernels and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_worth_packing(weight: Tensor) -> bool:
    """Return whether there is enough of it."""
    return weight.numel() >= _LEAST_WEIGHTS
