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
    starts,
    lengths,
    weight,
    bias,
    convolved,
    WIDTH: tl.constexpr,
    KERNEL: tl.constexpr,
    BIASED: tl.constexpr,
    SWISH: tl.constexpr,
    FRAMES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Some frames and channels of an utterance."""
    row = tl.program_id(2)
    start, length = tl.load(starts + row), tl.load(lengths + row)
    room = tl.load(starts + row + 1) - start
    begin = tl.program_id(0) * FRAMES
    if begin >= room:
        return
    frame = begin + tl.arange(0, FRAMES)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < WIDTH
    total = tl.zeros((FRAMES, CHANNELS), tl.float32)
    for tap in range(KERNEL):
        source = frame + tap - (KERNEL - 1) // 2
        wanted = ((source >= 0) & (source < length))[:, None] & known[None, :]
        place = halves + (start + source)[:, None] * (2 * WIDTH) + channel[None, :]
        content = tl.load(place, mask=wanted, other=0.0).to(tl.float32)
        gate = tl.load(place + WIDTH, mask=wanted, other=0.0).to(tl.float32)
        weights = tl.load(weight + channel * KERNEL + tap, mask=known, other=0.0).to(tl.float32)
        total += weights[None, :] * content / (1 + tl.exp(-gate))
    if BIASED:
        total += tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)[None, :]
    if SWISH:
        total = total / (1 + tl.exp(-total))
    place = convolved + (start + frame)[:, None] * WIDTH + channel[None, :]
    tl.store(place, total.to(convolved.dtype.element_ty), mask=(frame < room)[:, None] & known[None, :])


def gated_convolution(
    halves: Tensor, starts: Tensor, lengths: Tensor, time: int, weight: Tensor, bias: Tensor | None, *, swish: bool
) -> Tensor:
    """Gate the frames, silence their padding, convolve every channel over time.

    Args:
        halves: content, and behind it the gates, of all frames, [..., 2 * width].
        starts: the place of each row's first frame among them, and their number, int64 [batch + 1].
        lengths: real frames of each row, int64 [batch]; what lies between them and the next row is padding.
        time: the most frames that a row has, with its padding.
        weight: of the depthwise convolution, [width, 1, kernel]; the kernel is odd.
        bias: of the convolution, [width].
        swish: whether x * sigmoid(x) comes last.

    Returns:
        [..., width].
    """
    width = weight.size(0)
    convolved = torch.empty(*halves.shape[:-1], width, dtype=halves.dtype, device=halves.device)
    _convolve[(triton.cdiv(time, _FRAMES), triton.cdiv(width, _CHANNELS), lengths.size(0))](
        halves.contiguous(),
        starts,
        lengths,
        weight,
        bias,
        convolved,
        WIDTH=width,
        KERNEL=weight.size(2),
        BIASED=bias is not None,
        SWISH=swish,
        FRAMES=_FRAMES,
        CHANNELS=_CHANNELS,
    )
    return convolved
