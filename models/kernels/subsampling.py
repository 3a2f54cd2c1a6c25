"""The depthwise convolutions of the subsampling, each in one kernel with the operations before it.

Before the first is the convolution of the features, whose images are the largest tensor of an encoder: here they are
computed in registers and never written. Before a later one are ReLU and the masking of padding, which are applied as
images are read. All sums are float32.

All convolutions have kernels of 3 x 3, strides of 2 and a padding of 1: output frame and band n depend on inputs
2 n - 1 to 2 n + 1. A program visits its frames one by one, and the row of images that two of them share stays in
registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

# Frames and bands that a program writes, and channels.
_FRAMES, _BANDS = 16, 4
_CHANNELS = 256
# Features before the first frame or band that two convolutions in a row reach.
_BEFORE = 3


@triton.jit
def _weights(weight, channel, known):
    """Return the nine taps of some channels."""
    taps = ()
    for tap in tl.static_range(9):
        taps += (tl.load(weight + channel * 9 + tap, mask=known, other=0.0).to(tl.float32),)
    return taps


@triton.jit
def _features(place, BANDS: tl.constexpr):
    """Load the bands of a frame of features; all channels share the values."""
    row = ()
    for band in tl.static_range(4 * BANDS + 3):
        row += (tl.load(place + band).to(tl.float32),)
    return row


@triton.jit
def _first_images(above, here, below, is_real, begin, bands, taps, bias, BANDS: tl.constexpr):
    """Return a row of the first stage's images, from three frames of features; 0 outside the image."""
    row = ()
    for band in tl.static_range(2 * BANDS + 1):
        total = bias
        for tap in tl.static_range(3):
            total += taps[tap] * above[2 * band + tap]
            total += taps[3 + tap] * here[2 * band + tap]
            total += taps[6 + tap] * below[2 * band + tap]
        is_there = is_real & (begin + band >= 0) & (begin + band < bands)
        row += (tl.where(is_there, tl.maximum(total, 0.0), 0.0),)
    return row


@triton.jit
def _later_images(place, is_real, begin, bands, known, WIDTH: tl.constexpr, BANDS: tl.constexpr):
    """Return a row of a later stage's images, after ReLU; 0 outside the image."""
    row = ()
    for band in tl.static_range(2 * BANDS + 1):
        is_there = known & is_real & (begin + band >= 0) & (begin + band < bands)
        value = tl.load(place + band * WIDTH, mask=is_there, other=0.0).to(tl.float32)
        row += (tl.maximum(value, 0.0),)
    return row


@triton.jit
def _store_halves(place, above, here, below, taps, bias, known, left, WIDTH: tl.constexpr, BANDS: tl.constexpr):
    """Convolve three rows of images, and write a row of the result."""
    for band in tl.static_range(BANDS):
        total = bias
        for tap in tl.static_range(3):
            total += taps[tap] * above[2 * band + tap]
            total += taps[3 + tap] * here[2 * band + tap]
            total += taps[6 + tap] * below[2 * band + tap]
        tl.store(place + band * WIDTH, total.to(place.dtype.element_ty), mask=known & (band < left))


@triton.jit(do_not_specialize=["frames"])
def _halve_features(
    features,
    lengths,
    first_weight,
    first_bias,
    weight,
    bias,
    halves,
    frames,
    PITCH: tl.constexpr,
    BANDS_IN: tl.constexpr,
    BANDS_OUT: tl.constexpr,
    WIDTH: tl.constexpr,
    FRAMES: tl.constexpr,
    BANDS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Some frames and bands of an utterance."""
    row, begin = tl.program_id(2), tl.program_id(0) * FRAMES
    blocks: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    band = tl.program_id(1) // blocks * BANDS
    channel = tl.program_id(1) % blocks * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < WIDTH
    first_taps, taps = _weights(first_weight, channel, known), _weights(weight, channel, known)
    first_shift = tl.load(first_bias + channel, mask=known, other=0.0).to(tl.float32)
    shift = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)
    length = tl.load(lengths + row).to(tl.int32)
    rows = tl.num_programs(0) * (4 * FRAMES) + 3
    place = features + (row.to(tl.int64) * rows + 4 * begin) * PITCH + 4 * band
    first_band = 2 * band - 1
    # The row of images above the first frame; the next row shares the last of its three frames of features.
    shared = _features(place + 2 * PITCH, BANDS)
    above = _first_images(
        _features(place, BANDS), _features(place + PITCH, BANDS), shared,
        begin > 0, first_band, BANDS_IN, first_taps, first_shift, BANDS,
    )  # fmt: skip
    for step in range(FRAMES):
        frame = begin + step
        place += 4 * PITCH
        middle = _features(place, BANDS)
        here = _first_images(
            shared, _features(place - PITCH, BANDS), middle,
            2 * frame < length, first_band, BANDS_IN, first_taps, first_shift, BANDS,
        )  # fmt: skip
        shared = _features(place + 2 * PITCH, BANDS)
        below = _first_images(
            middle, _features(place + PITCH, BANDS), shared,
            2 * frame + 1 < length, first_band, BANDS_IN, first_taps, first_shift, BANDS,
        )  # fmt: skip
        written = halves + ((row.to(tl.int64) * frames + frame) * BANDS_OUT + band) * WIDTH + channel
        _store_halves(
            written, above, here, below, taps, shift, known & (frame < frames), BANDS_OUT - band, WIDTH, BANDS
        )
        above = below


@triton.jit(do_not_specialize=["frames", "frames_in"])
def _halve_images(
    images,
    lengths,
    weight,
    bias,
    halves,
    frames,
    frames_in,
    BANDS_IN: tl.constexpr,
    BANDS_OUT: tl.constexpr,
    WIDTH: tl.constexpr,
    FRAMES: tl.constexpr,
    BANDS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Some frames and bands of an utterance."""
    row, begin = tl.program_id(2), tl.program_id(0) * FRAMES
    blocks: tl.constexpr = (WIDTH + CHANNELS - 1) // CHANNELS
    band = tl.program_id(1) // blocks * BANDS
    channel = tl.program_id(1) % blocks * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < WIDTH
    taps = _weights(weight, channel, known)
    shift = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)
    length = tl.load(lengths + row).to(tl.int32)
    first_band = 2 * band - 1
    pitch: tl.constexpr = BANDS_IN * WIDTH
    place = images + (row.to(tl.int64) * frames_in + 2 * begin) * pitch + first_band * WIDTH + channel
    is_real = (begin > 0) & (2 * begin - 1 < length)
    above = _later_images(place - pitch, is_real, first_band, BANDS_IN, known, WIDTH, BANDS)
    for step in range(FRAMES):
        frame = begin + step
        here = _later_images(place, 2 * frame < length, first_band, BANDS_IN, known, WIDTH, BANDS)
        below = _later_images(place + pitch, 2 * frame + 1 < length, first_band, BANDS_IN, known, WIDTH, BANDS)
        written = halves + ((row.to(tl.int64) * frames + frame) * BANDS_OUT + band) * WIDTH + channel
        _store_halves(
            written, above, here, below, taps, shift, known & (frame < frames), BANDS_OUT - band, WIDTH, BANDS
        )
        above = below
        place += 2 * pitch


def halved_features(
    features: Tensor, lengths: Tensor, first_weight: Tensor, first_bias: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Convolve features, apply ReLU, zero the padding, and convolve each channel of the result.

    Args:
        features: [batch, mels, frames], zero in the padding.
        lengths: real frames after the first convolution, int64 [batch].
        first_weight: weight of the first convolution, [channels, 1, 3, 3].
        first_bias: [channels].
        weight: weight of the depthwise convolution, [channels, 1, 3, 3].
        bias: [channels].

    Returns:
        [batch, ceil(frames / 4), ceil(mels / 4), channels]; padding is finite.
    """
    batch, mels, time = features.shape
    width, frames, bands = weight.size(0), -(-time // 4), -(-mels // 4)
    # A border of zeros, so that the kernel needs no checks at the edges.
    after = 4 * _FRAMES * triton.cdiv(frames, _FRAMES) - time, 4 * _BANDS * triton.cdiv(bands, _BANDS) - mels
    framed = pad(features.transpose(1, 2), (_BEFORE, after[1], _BEFORE, after[0])).contiguous()
    halves = torch.empty(batch, frames, bands, width, dtype=features.dtype, device=features.device)
    if not halves.numel():
        return halves
    _halve_features[_grid(frames, bands, width, batch)](
        framed,
        lengths,
        first_weight,
        first_bias,
        weight,
        bias,
        halves,
        frames,
        PITCH=framed.size(2),
        BANDS_IN=-(-mels // 2),
        BANDS_OUT=bands,
        WIDTH=width,
        FRAMES=_FRAMES,
        BANDS=_BANDS,
        CHANNELS=_CHANNELS,
    )
    return halves


def halved_images(images: Tensor, lengths: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply ReLU, zero the padding, and convolve each channel.

    Args:
        images: [batch, frames, bands, channels].
        lengths: real frames of each row, int64 [batch]; padding is not read.
        weight: [channels, 1, 3, 3].
        bias: [channels].

    Returns:
        [batch, ceil(frames / 2), ceil(bands / 2), channels]; padding is finite.
    """
    batch, time, bands_in, width = images.shape
    frames, bands = -(-time // 2), -(-bands_in // 2)
    halves = torch.empty(batch, frames, bands, width, dtype=images.dtype, device=images.device)
    if not halves.numel():
        return halves
    _halve_images[_grid(frames, bands, width, batch)](
        images.contiguous(),
        lengths,
        weight,
        bias,
        halves,
        frames,
        time,
        BANDS_IN=bands_in,
        BANDS_OUT=bands,
        WIDTH=width,
        FRAMES=_FRAMES,
        BANDS=_BANDS,
        CHANNELS=_CHANNELS,
    )
    return halves


def _grid(frames: int, bands: int, width: int, batch: int) -> tuple[int, int, int]:
    return triton.cdiv(frames, _FRAMES), triton.cdiv(bands, _BANDS) * triton.cdiv(width, _CHANNELS), batch
