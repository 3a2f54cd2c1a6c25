"""The middle of a Conformer's convolution module in one kernel: gate, mask, depthwise convolution, Swish.

Plain operations take four passes over the frames, and two more to transpose them for the convolution. Here frames are
read once and written once. All sums are float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Frames of a program: in a batch that fills a GPU, and in a smaller one.
_FRAMES, _FRAMES_OF_SMALL_BATCHES = 16, 8
_LARGE_BATCH = 8192
_CHANNELS = 256


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
    LEFT: tl.constexpr,
    BIASED: tl.constexpr,
    SWISH: tl.constexpr,
    FRAMES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Compute some frames and channels of an utterance.

    It visits frames one by one, and keeps those within the convolution's reach in registers, so it reads and gates each
    once; frames near its edges are read by the neighbouring program too. All loops are unrolled.
    """
    row = tl.program_id(2)
    start = tl.load(starts + row)
    begin = tl.program_id(0) * FRAMES
    room = (tl.load(starts + row + 1) - start).to(tl.int32) - begin
    if room <= 0:
        return
    real = tl.load(lengths + row).to(tl.int32) - begin
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < WIDTH
    place = halves + (start + begin) * (2 * WIDTH) + channel
    place_out = convolved + (start + begin) * WIDTH + channel
    weights = ()
    for tap in tl.static_range(KERNEL):
        weights += (tl.load(weight + channel * KERNEL + tap, mask=known, other=0.0).to(tl.float32),)
    first = tl.zeros((CHANNELS,), tl.float32)
    if BIASED:
        first = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)
    gated = ()
    for step in tl.static_range(FRAMES + KERNEL - 1):
        ahead = step - LEFT
        wanted = known & (ahead < real)
        if step < LEFT:
            wanted = wanted & (begin + ahead >= 0)
        content = tl.load(place + ahead * 2 * WIDTH, mask=wanted, other=0.0).to(tl.float32)
        gate = tl.load(place + (ahead * 2 * WIDTH + WIDTH), mask=wanted, other=0.0).to(tl.float32)
        gated += (content / (1 + tl.exp(-gate)),)
        if step >= KERNEL - 1:
            total = first
            for tap in tl.static_range(KERNEL):
                total += weights[tap] * gated[step - (KERNEL - 1) + tap]
            if SWISH:
                total = total / (1 + tl.exp(-total))
            written = step - (KERNEL - 1)
            tl.store(place_out + written * WIDTH, total.to(convolved.dtype.element_ty), mask=known & (written < room))


def gated_convolution(
    halves: Tensor,
    starts: Tensor,
    lengths: Tensor,
    time: int,
    weight: Tensor,
    bias: Tensor | None,
    *,
    swish: bool,
    left: int | None = None,
) -> Tensor:
    """Gate the frames, zero the padding, convolve each channel over time, and apply Swish if asked to.

    Args:
        halves: all frames, the content of each before its gates, [..., 2 * width].
        starts: index of each row's first frame, and at the end the number of frames, int64 [batch + 1].
        lengths: real frames of each row, int64 [batch]; frames from there to the next row are padding.
        time: most frames of a row, padding included.
        weight: weight of the depthwise convolution, [width, 1, kernel].
        bias: bias of the convolution, [width].
        swish: whether to apply Swish.
        left: frames before a frame that the convolution sees; None for half of the others.

    Returns:
        [..., width].
    """
    width = weight.size(0)
    frames = _FRAMES if time * lengths.size(0) >= _LARGE_BATCH else _FRAMES_OF_SMALL_BATCHES
    convolved = torch.empty(*halves.shape[:-1], width, dtype=halves.dtype, device=halves.device)
    _convolve[(triton.cdiv(time, frames), triton.cdiv(width, _CHANNELS), lengths.size(0))](
        halves.contiguous(),
        starts,
        lengths,
        weight,
        bias,
        convolved,
        WIDTH=width,
        KERNEL=weight.size(2),
        LEFT=weight.size(2) // 2 if left is None else left,
        BIASED=bias is not None,
        SWISH=swish,
        FRAMES=frames,
        CHANNELS=_CHANNELS,
    )
    return convolved
