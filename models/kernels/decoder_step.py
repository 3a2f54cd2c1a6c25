"""A step of an attention decoder (models/heads/attention_decoder.py) in eight kernels a layer: one token of each row.

In plain operations a layer is some thirty kernels, each faster than its launch. Here the product after a norm computes
the norm, in every program, and the product before a sum computes the sum. Attention reads keys and values up to the
token, or up to the end of the row's frames. All sums, norms and softmaxes are float32.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from models.kernels.tiles import Tile, chosen_tile

ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2}
# With four warps the large tile spills on sm_100.
FEW, MANY = Tile(16, 16), Tile(64, 64, warps=8, stages=2)
SLICE = 128  # values of a row that are multiplied at once
KEYS = 64  # keys that a program of attention reads at once


@triton.jit(do_not_specialize=["rows"])
def _multiply(
    inputs,
    norm_weight,
    norm_bias,
    weight,
    bias,
    before,
    outputs,
    rows,
    columns,
    epsilon,
    WIDTH: tl.constexpr,
    NORMED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SLICE: tl.constexpr,
):
    """Compute a tile of a product: of the rows' norms if NORMED, added to ``before`` if ADDED."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real, known = row < rows, column < columns
    mean = tl.zeros((ROWS,), tl.float32)
    deviation = tl.full((ROWS,), 1.0, tl.float32)
    if NORMED:
        for start in range(0, WIDTH, SLICE):
            k = start + tl.arange(0, SLICE)
            there = real[:, None] & (k < WIDTH)[None, :]
            values = tl.load(inputs + row[:, None] * WIDTH + k[None, :], mask=there, other=0.0)
            mean += tl.sum(values.to(tl.float32), axis=1) / WIDTH
        variance = tl.zeros((ROWS,), tl.float32)
        for start in range(0, WIDTH, SLICE):
            k = start + tl.arange(0, SLICE)
            there = real[:, None] & (k < WIDTH)[None, :]
            values = tl.load(inputs + row[:, None] * WIDTH + k[None, :], mask=there, other=0.0)
            centred = tl.where(there, values.to(tl.float32) - mean[:, None], 0.0)
            variance += tl.sum(centred * centred, axis=1) / WIDTH
        deviation = tl.sqrt(variance + epsilon)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, WIDTH, SLICE):
        k = start + tl.arange(0, SLICE)
        inside = k < WIDTH
        values = tl.load(inputs + row[:, None] * WIDTH + k[None, :], mask=real[:, None] & inside[None, :], other=0.0)
        if NORMED:
            scale = tl.load(norm_weight + k, mask=inside, other=0.0).to(tl.float32)
            shift = tl.load(norm_bias + k, mask=inside, other=0.0).to(tl.float32)
            normed = (values.to(tl.float32) - mean[:, None]) / deviation[:, None] * scale[None, :] + shift[None, :]
            values = normed.to(values.dtype)
        weights = tl.load(
            weight + column[None, :] * WIDTH + k[:, None], mask=inside[:, None] & known[None, :], other=0.0
        )
        total += tl.dot(values, weights, input_precision="ieee")
    total += tl.load(bias + column, mask=known, other=0.0)[None, :].to(tl.float32)
    if ACTIVATION == 1:
        total = tl.maximum(total, 0.0)
    elif ACTIVATION == 2:
        total = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    place = row[:, None] * columns + column[None, :]
    wanted = real[:, None] & known[None, :]
    if ADDED:
        total += tl.load(before + place, mask=wanted, other=0.0).to(tl.float32)
    tl.store(outputs + place, total.to(outputs.dtype.element_ty), mask=wanted)


@triton.jit
def _attend_from_token(
    queries,
    keys,
    values,
    bounds,
    attended,
    row_stride,
    head_stride,
    time_stride,
    scale,
    HEADS: tl.constexpr,
    SHARE: tl.constexpr,
    CHANNELS: tl.constexpr,
    OWN: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Compute a head of a row: its token attends to itself and those before it if OWN, else to the row's frames.

    If OWN, key and value of the token come after its query, and are written to the position of the token.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width = HEADS * SHARE
    channel, place = tl.arange(0, CHANNELS), tl.arange(0, KEYS)
    known = channel < SHARE
    past = row * row_stride + head * head_stride
    best = tl.full((1,), -1e30, tl.float32)
    mass = tl.zeros((1,), tl.float32)
    total = tl.zeros((CHANNELS,), tl.float32)
    if OWN:
        bound = tl.load(bounds).to(tl.int32)
        asking = queries + row * 3 * width + head * SHARE + channel
        query = tl.load(asking, mask=known, other=0.0).to(tl.float32)
        own_key = tl.load(asking + width, mask=known, other=0.0)
        own_value = tl.load(asking + 2 * width, mask=known, other=0.0)
        here = past + bound * time_stride + channel
        tl.store(keys + here, own_key, mask=known)
        tl.store(values + here, own_value, mask=known)
        best = tl.zeros((1,), tl.float32) + tl.sum(query * own_key.to(tl.float32), axis=0) * scale
        mass += 1.0
        total += own_value.to(tl.float32)
    else:
        bound = tl.load(bounds + row).to(tl.int32)
        query = tl.load(queries + row * width + head * SHARE + channel, mask=known, other=0.0).to(tl.float32)
    for first in range(0, bound, KEYS):
        time = first + place
        there = time < bound
        inside = there[:, None] & known[None, :]
        those = past + time[:, None] * time_stride + channel[None, :]
        key = tl.load(keys + those, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(values + those, mask=inside, other=0.0).to(tl.float32)
        scores = tl.where(there, tl.sum(query[None, :] * key, axis=1) * scale, -1e30)
        top = tl.maximum(best, tl.max(scores, axis=0))
        weights = tl.exp(scores - top)
        kept = tl.exp(best - top)
        total = total * kept + tl.sum(weights[:, None] * value, axis=0)
        mass = mass * kept + tl.sum(weights, axis=0)
        best = top
    # A row without a frame gives zeros.
    result = (total / tl.where(mass > 0, mass, 1.0)).to(attended.dtype.element_ty)
    tl.store(attended + row * width + head * SHARE + channel, result, mask=known)


def multiply(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    norm: tuple[Tensor, Tensor, float] | None = None,
    activation: str = "none",
    before: Tensor | None = None,
) -> Tensor:
    """Multiply rows, or their norms, with weights.

    Args:
        inputs: [rows, width], contiguous.
        weight: [columns, width], contiguous.
        bias: [columns].
        norm: weight and bias [width] of a layer norm of ``inputs``, and its epsilon.
        activation: one of ``ACTIVATIONS``.
        before: what the product is added to, [rows, columns], contiguous.

    Returns:
        [rows, columns].
    """
    (rows, width), columns = inputs.shape, weight.size(0)
    outputs = inputs.new_empty(rows, columns)
    tile = chosen_tile(FEW, MANY, rows, columns, weight.dtype)
    norm_weight, norm_bias, epsilon = (bias, bias, 0.0) if norm is None else norm
    _multiply[triton.cdiv(rows, tile.rows), triton.cdiv(columns, tile.columns)](
        inputs,
        norm_weight,
        norm_bias,
        weight,
        bias,
        inputs if before is None else before,
        outputs,
        rows,
        columns,
        epsilon,
        WIDTH=width,
        NORMED=norm is not None,
        ACTIVATION=ACTIVATIONS[activation],
        ADDED=before is not None,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        SLICE=SLICE,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return outputs


def attend_from_token(queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, *, own: bool) -> Tensor:
    """Attend from one token of each row.

    Args:
        queries: [rows, width]; with ``own``, query, key and value side by side, [rows, 3 * width].
        keys: [rows, heads, time, width / heads], values of a head side by side.
        values: of the same shape and strides.
        bounds: number of keys of each row, int64 [rows]; with ``own``, the position of the token, [1].
        own: whether this is self-attention, to the token and those before it; its key and value are added to these.

    Returns:
        [rows, width].
    """
    rows, heads, _, share = keys.shape
    attended = queries.new_empty(rows, heads * share)
    if not rows:
        return attended
    _attend_from_token[rows, heads](
        queries,
        keys,
        values,
        bounds,
        attended,
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        1 / math.sqrt(share),
        HEADS=heads,
        SHARE=share,
        CHANNELS=triton.next_power_of_2(share),
        OWN=own,
        KEYS=KEYS,
    )
    return attended
