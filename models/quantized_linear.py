"""Products in 8 bits, for inference on a CPU that has such products (VNNI).

Weights are rounded once, to 255 levels for each output; inputs each time, to 255 levels for each frame. So a frame
gives the same whatever stands beside it. Sums are exact, and what comes out is float32.
"""

import torch
from torch import Tensor, nn

_LEVELS = 127
# oneDNN's products take inputs without a sign, of which this is zero.
_ZERO = 128
# Weights from which on rounding the inputs is made good.
_LEAST_WEIGHTS = 2**15


class QuantizedLinear(nn.Module):
    """Gives about what an ``nn.Linear`` gives."""

    def __init__(self, linear: nn.Linear) -> None:
        """Round the weights of ``linear``, float32 on a CPU."""
        super().__init__()
        scales = (linear.weight.detach().abs().amax(dim=1) / _LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
        rounded = (linear.weight.detach() / scales[:, None]).round_().to(torch.int8)
        self.weight: Tensor
        self.scales: Tensor
        self.zeros: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", torch.ops.onednn.qlinear_prepack(rounded, None), persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("zeros", torch.zeros_like(scales, dtype=torch.int32), persistent=False)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach(), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product [..., outputs] for ``inputs`` [..., inputs], float32."""
        frames = inputs.flatten(0, -2)
        scale = torch.maximum(frames.amax(dim=1, keepdim=True), -frames.amin(dim=1, keepdim=True)) / _LEVELS
        scale.clamp_(min=torch.finfo(torch.float32).tiny)
        # By way of signed ones, to which torch converts four times as fast.
        levels = (frames * scale.reciprocal()).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(_ZERO)
        product: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            levels, 1.0, _ZERO, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        if self.bias is None:
            product.mul_(scale)
        else:
            torch.addcmul(self.bias, product, scale, out=product)
        return torch.unflatten(product, 0, inputs.shape[:-1])


def can_quantize() -> bool:
    """Return whether this processor and this build of torch have products in 8 bits."""
    return torch.cpu._is_vnni_supported() and hasattr(torch.ops.onednn, "qlinear_pointwise")  # noqa: SLF001  # no other


def is_worth_quantizing(linear: nn.Linear) -> bool:
    """Return whether it is large enough."""
    return linear.weight.numel() >= _LEAST_WEIGHTS
