"""A module's change added to the frames, and the norm of the next module, in one kernel.

In plain operations the frames are written by the sum and read again by the norm, in a launch each. Here they stay in
registers between the two. Sums and moments are float32; the sum is rounded to the frames' precision before the norm, as
it is where it is stored.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Triton's types mean nothing to a type checker.
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, index, no-untyped-call"
# ruff: noqa: ANN001, ANN202, N803


@triton.jit
def _add_and_norm(
    before, change, weight, bias, total, normed, share, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """A frame."""
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, BLOCK)
    channel = tl.arange(0, BLOCK)
    known = channel < WIDTH
    values = tl.load(before + place, mask=known, other=0.0).to(tl.float32)
    values += share * tl.load(change + place, mask=known, other=0.0).to(tl.float32)
    values = values.to(total.dtype.element_ty)
    tl.store(total + place, values, mask=known)
    values = values.to(tl.float32)
    mean = tl.sum(values, axis=0) / WIDTH
    centred = tl.where(known, values - mean, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred, axis=0) / WIDTH + epsilon)
    scale = tl.load(weight + channel, mask=known, other=0.0).to(tl.float32)
    shift = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)
    result = centred / deviation * scale + shift
    tl.store(normed + place, result.to(normed.dtype.element_ty), mask=known)


def residual_norm(
    frames: Tensor, change: Tensor, share: float, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Add a share of a change to the frames, and norm the sum.

    Args:
        frames: [..., width].
        change: in the same shape.
        share: of the change that is added.
        weight: of the norm, [width].
        bias: of the norm, [width].
        epsilon: what the norm adds to the variance.

    Returns:
        The sum, and its norm.
    """
    frames, change = frames.contiguous(), change.contiguous()
    width = frames.size(-1)
    total, normed = torch.empty_like(frames), torch.empty_like(frames)
    if frames.numel():
        _add_and_norm[(frames.numel() // width,)](
            frames,
            change,
            weight,
            bias,
            total,
            normed,
            share,
            epsilon,
            WIDTH=width,
            BLOCK=triton.next_power_of_2(width),
        )
    return total, normed
