"""The sum of frames and a module's output, and the norm of the next module, in one kernel.

Plain operations write the sum and read it again for the norm, in two launches. Here the norm has it in registers, but
rounded to the frames' dtype, as it is stored. Sums and moments are float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_and_norm(
    before, change, weight, bias, total, normed, share, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute a frame."""
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
    """Add ``share`` times a module's output to the frames, and normalise the sum.

    Args:
        frames: [..., width].
        change: the module's output, in the same shape.
        share: factor of the output.
        weight: weight of the norm, [width].
        bias: bias of the norm, [width].
        epsilon: added to the variance by the norm.

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
