"""Products in 8 bits, for inference on a CPU that has such products (`cpu.multiplies_eight_bits_exactly`).

Weights are rounded once, to 255 levels for each output; inputs at each call, to 255 levels for each frame, so that a
frame's result does not depend on the others. Sums are exact.
"""

import torch
from torch import Tensor, nn

_LEVELS = 127
# oneDNN's products take unsigned inputs; this is their zero.
_ZERO = 128
# Frames rounded at a time, so that intermediate values stay in the caches.
_FRAMES = 512
# Products with fewer weights do not save the time that rounding the inputs takes.
_LEAST_WEIGHTS = 2**15


class QuantizedLinear(nn.Module):
    """An ``nn.Linear`` with rounded weights and inputs."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype = torch.float32) -> None:
        """Round the weights of ``linear``, on a CPU; inputs and outputs will be of ``dtype``, float32 or bfloat16."""
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
        """Do nothing when the network is converted to another dtype."""
        return self


def _rounded(frames: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unsigned levels of ``frames`` [n, inputs], and the size of a level in each frame, [n, 1]."""
    exact = frames.float()
    scale = torch.maximum(exact.amax(dim=1, keepdim=True), -exact.amin(dim=1, keepdim=True)) / _LEVELS
    scale.clamp_(min=torch.finfo(torch.float32).tiny)
    # Converted to signed ones first, which torch does four times as fast.
    return (exact * scale.reciprocal()).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(_ZERO), scale


def is_worth_quantizing(linear: nn.Linear) -> bool:
    """Return whether a product is large enough to be quantized."""
    return linear.weight.numel() >= _LEAST_WEIGHTS
