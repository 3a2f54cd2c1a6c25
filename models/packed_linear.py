"""Products whose weights lie as oneDNN reads them fastest, for inference on a CPU.

An ordinary product lays its weights out anew at every call, which shows where it has few rows; and where MKL does not
know the processor, oneDNN has the faster kernels besides.
"""

import torch
from torch import Tensor, nn

# Weights from which on it is worth the call, which takes longer than an ordinary one.
_LEAST_WEIGHTS = 2**18


class PackedLinear(nn.Module):
    """Gives what an ``nn.Linear`` gives, or SiLU of it."""

    def __init__(self, linear: nn.Linear, *, swish: bool = False) -> None:
        """Take over the weights of ``linear``, on a CPU; ``swish`` applies SiLU."""
        super().__init__()
        # Neither public nor in every build (see `can_pack`): torch's compiler makes its own products with these two.
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())  # noqa: SLF001
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", packed, persistent=False)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach(), persistent=False)
        self._activation = "swish" if swish else "none"

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product [..., outputs] for ``inputs`` [..., inputs]."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(  # noqa: SLF001
            inputs, self.weight, self.bias, self._activation, [], ""
        )
        return product


def can_pack(linear: nn.Linear) -> bool:
    """Return whether it is worth packing, and this build of torch can."""
    if linear.weight.numel() < _LEAST_WEIGHTS:
        return False
    has_kernels: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_kernels and hasattr(torch.ops.mkldnn, "_linear_pointwise")
