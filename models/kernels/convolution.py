"""The middle of a Conformer's convolution module in one kernel: gate, mask, depthwise convolution, Swish.

In plain operations that is four passes over the frames, and two more to turn them for the convolution. Here they are
read once, twice as wide as they are written. All values are summed in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Triton's types mean nothing to a type checker.
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, index, no-untyped-call"
# ruff: noqa: ANN001, ANN202, N803

_FRAMES = 32
_CHANNELS = 64


@triton.jit
def _convolve(
    halves,
    valid,
    weight,
    bias,
    convolved,
    time,
    WIDTH: tl.constexpr,
    KERNEL: tl.constexpr,
    BIASED: tl.constexpr,
    SWISH: tl.constexpr,
    FRAMES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Some frames and channels of an utterance."""
    row = tl.program_id(2).to(tl.int64)
    frame = tl.program_id(0) * FRAMES + tl.arange(0, FRAMES)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < WIDTH
    total = tl.zeros((FRAMES, CHANNELS), tl.float32)
    for tap in range(KERNEL):
        source = frame + tap - (KERNEL - 1) // 2
        inside = (source >= 0) & (source < time)
        inside = inside & (tl.load(valid + row * time + source, mask=inside, other=0) != 0)
        wanted = inside[:, None] & known[None, :]
        place = halves + (row * time + source)[:, None] * (2 * WIDTH) + channel[None, :]
        content = tl.load(place, mask=wanted, other=0.0).to(tl.float32)
        gate = tl.load(place + WIDTH, mask=wanted, other=0.0).to(tl.float32)
        weights = tl.load(weight + channel * KERNEL + tap, mask=known, other=0.0).to(tl.float32)
        total += weights[None, :] * content / (1 + tl.exp(-gate))
    if BIASED:
        total += tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)[None, :]
    if SWISH:
        total = total / (1 + tl.exp(-total))
    place = convolved + (row * time + frame)[:, None] * WIDTH + channel[None, :]
    tl.store(place, total.to(convolved.dtype.element_ty), mask=(frame < time)[:, None] & known[None, :])


def gated_convolution(halves: Tensor, valid: Tensor, weight: Tensor, bias: Tensor | None, *, swish: bool) -> Tensor:
    """Gate the frames, silence those that are not valid, convolve every channel over time.

    Args:
        halves: content, and behind it the gates, [batch, time, 2 * width].
        valid: which frames are real, bool [batch, time].
        weight: of the depthwise convolution, [width, 1, kernel]; the kernel is odd.
        bias: of the convolution, [width].
        swish: whether x * sigmoid(x) comes last.

    Returns:
        [batch, time, width].
    """
    batch, time, width = *halves.shape[:2], weight.size(0)
    convolved = torch.empty(batch, time, width, dtype=halves.dtype, device=halves.device)
    _convolve[(triton.cdiv(time, _FRAMES), triton.cdiv(width, _CHANNELS), batch)](
        halves.contiguous(),
        valid.contiguous(),
        weight,
        bias,
        convolved,
        time,
        WIDTH=width,
        KERNEL=weight.size(2),
        BIASED=bias is not None,
        SWISH=swish,
        FRAMES=_FRAMES,
        CHANNELS=_CHANNELS,
    )
    return convolved
