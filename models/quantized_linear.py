"""Products in 8 bits, for inference on a CPU that has such products (`cpu.multiplies_eight_bits_exactly`).

Weights are rounded once, to 255 levels for each output; inputs each time, to 255 levels for each frame. So a frame
gives the same whatever stands beside it. Sums are exact.
"""

import torch
from torch import Tensor, nn

_LEVELS = 127
# oneDNN's products take inputs without a sign, of which this is zero.
_ZERO = 128
# Frames that are rounded at once: what lies in between stays in the caches.
_FRAMES = 512
# Weights from which on rounding the inputs is made good.
_LEAST_WEIGHTS = 2**15


class QuantizedLinear(nn.Module):
    """Gives about what an ``nn.Linear`` gives."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype = torch.float32) -> None:
        """Round the weights of ``linear``, on a CPU; it will take and give ``dtype``, float32 or bfloat16."""
        super().__init__()
        weight = linear.weight.detach().float()
        scales = (weight.abs().amax(dim=1) / _LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
        rounded = (weight / scales[:, None]).round_().to(torch.int8)
        self.weight: Tensor
        self.scales: Tensor
        self.zeros: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", torch.ops.onednn.qlinear_prepack(rounded, None), persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("zeros", torch.zeros_like(scales, dtype=torch.int32), persistent=False)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().to(dtype), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product [..., outputs] for ``inputs`` [..., inputs], in their dtype."""
        frames = inputs.flatten(0, -2)
        rounded = [_rounded(some) for some in torch.split(frames, _FRAMES)]
        levels, scale = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*rounded, strict=True))
        product: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            levels, 1.0, _ZERO, self.weight, self.scales, self.zeros, None, 1.0, 0, inputs.dtype, "none", [], ""
        )
        scale = scale.to(inputs.dtype)
        if self.bias is None:
            product.mul_(scale)
        else:
            torch.addcmul(self.bias, product, scale, out=product)
        return torch.unflatten(product, 0, inputs.shape[:-1])

    def _apply(self, *_: object, **__: object) -> "QuantizedLinear":
        """Stay as it is when a network is moved to another dtype."""
        return self


def _rounded(frames: Tensor) -> tuple[Tensor, Tensor]:
    """Return the levels of ``frames`` [n, inputs], without a sign, and what one level is in each of them, [n, 1]."""
    exact = frames.float()
    scale = torch.maximum(exact.amax(dim=1, keepdim=True), -exact.amin(dim=1, keepdim=True)) / _LEVELS
    scale.clamp_(min=torch.finfo(torch.float32).tiny)
    # By way of signed ones, to which torch converts four times as fast.
    return (exact * scale.reciprocal()).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(_ZERO), scale


def is_worth_quantizing(linear: nn.Linear) -> bool:
    """Return whether it is large enough."""
    return linear.weight.numel() >= _LEAST_WEIGHTS
