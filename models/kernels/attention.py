"""Self-attention by content and distance (models/encoders/attention.py) in one kernel, which writes no scores.

Plain operations write the scores by distance, twice as many as there are scores, read them shifted, mask them, and
write them again before the softmax. Here a program has a tile of queries of one head, and visits the keys tile by tile
with a running softmax (Milakov and Gimelshein, 2018; Dao et al., 2022). The distances between a tile of queries and a
tile of keys span two tiles: their scores by distance are one product, whose rows are then shifted in registers. All
sums are float32.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

# Triton's types mean nothing to a type checker.
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, index, no-untyped-call"
# ruff: noqa: ANN001, ANN202, N803

_LEAST_TILE = 16  # the smallest for tensor cores
_LEAST_CHANNELS = 16
# Limit on channels x queries x the square of a value's bytes, so that registers suffice and a program takes at most 96
# kB of shared memory, which most GPUs have.
_TILE_ROOM = 128 * 64 * 2**2
_FULL = -1


class Launch(NamedTuple):
    """The division of the work.

    Attributes:
        tile: most queries, and keys, of a program at a time; a power of two.
        warps: warps of a program.
        stages: tiles of keys that are loaded at the same time. With two, the largest tiles take more shared memory than
            an H100 has.
    """

    tile: int = 64
    warps: int = 8
    stages: int = 1


_LAUNCH = Launch()


@triton.jit
def _inside(real, known, ALL_KNOWN: tl.constexpr):
    """Return a mask of rows by channels that allows wide loads if all channels exist."""
    inside = real[:, None]
    if not ALL_KNOWN:
        inside = inside & known[None, :]
    return inside


@triton.jit
def _attend(
    merged,
    table,
    content_bias,
    position_bias,
    starts,
    lengths,
    attended,
    reach,
    table_head,
    table_row,
    scale,
    HEADS: tl.constexpr,
    SHARE: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    CONTEXT: tl.constexpr,
):
    """Compute a tile of queries of one head of one row of the batch."""
    begin, head, row = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2)
    start, length = tl.load(starts + row), tl.load(lengths + row)
    room = tl.load(starts + row + 1) - start
    if begin >= room:
        return
    width = HEADS * SHARE
    channel, place = tl.arange(0, CHANNELS), tl.arange(0, TILE)
    known = channel < SHARE
    query = begin + place
    own = start * 3 * width + head * SHARE
    asking = _inside(query < length, known, CHANNELS == SHARE)
    asked = tl.load(merged + own + query[:, None] * (3 * width) + channel[None, :], mask=asking, other=0.0)
    biases = head * SHARE + channel
    with_content = asked + tl.load(content_bias + biases, mask=known, other=0.0)[None, :]
    with_position = asked + tl.load(position_bias + biases, mask=known, other=0.0)[None, :]
    best = tl.full((TILE,), -1e30, tl.float32)
    mass = tl.zeros((TILE,), tl.float32)
    total = tl.zeros((TILE, CHANNELS), tl.float32)
    first = begin * 0
    if CONTEXT >= 0:
        first = tl.maximum(begin - CONTEXT, 0)
    for tile in range(TILES):
        key = first + tile * TILE + place
        there = key < length
        inside = _inside(there, known, CHANNELS == SHARE)
        place_of_key = merged + own + key[:, None] * (3 * width) + channel[None, :]
        keys = tl.load(place_of_key + width, mask=inside, other=0.0)
        values = tl.load(place_of_key + 2 * width, mask=inside, other=0.0)
        # Row reach - 1 - d of the table is for distance d. The last query and the first key are farthest apart.
        apart = reach - 1 - (begin + TILE - 1) + first + tile * TILE + tl.arange(0, 2 * TILE)
        distances = tl.load(
            table + head * table_head + apart[:, None] * table_row + channel[None, :],
            mask=_inside((apart >= 0) & (apart < 2 * reach - 1), known, CHANNELS == SHARE),
            other=0.0,
        )
        by_distance = tl.dot(with_position, tl.trans(distances), input_precision="ieee")
        scores = tl.dot(with_content, tl.trans(keys), input_precision="ieee")
        scores += tl.gather(by_distance, place[None, :] - place[:, None] + TILE - 1, 1)
        visible = there[None, :]
        if CONTEXT >= 0:
            visible = visible & (tl.abs(query[:, None] - key[None, :]) <= CONTEXT)
        # Finite, so that a row without visible keys gives numbers.
        scores = tl.where(visible, scores * scale, -1e30)
        top = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp(scores - top[:, None])
        kept = tl.exp(best - top)
        total = total * kept[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        mass = mass * kept + tl.sum(weights, axis=1)
        best = top
    result = (total / mass[:, None]).to(attended.dtype.element_ty)
    tl.store(
        attended + (start + query[:, None]) * width + head * SHARE + channel[None, :],
        result,
        mask=_inside(query < room, known, CHANNELS == SHARE),
    )


def relative_attention(
    merged: Tensor,
    table: Tensor,
    content_bias: Tensor,
    position_bias: Tensor,
    starts: Tensor,
    lengths: Tensor,
    time: int,
    context: int | None,
    launch: Launch = _LAUNCH,
) -> Tensor:
    """Attend from each frame to the real frames of its row, all or those within ``context``.

    Args:
        merged: query, key and value of all frames, [..., 3 * width].
        table: the projected distances reach - 1 down to 1 - reach, [heads, 2 * reach - 1, width / heads], contiguous in
            the last dimension. Frames that see each other must not be farther apart.
        content_bias: added to queries for the product with keys, [heads, width / heads].
        position_bias: added to queries for the product with distances, in the same shape.
        starts: index of each row's first frame, and at the end the number of frames, int64 [batch + 1].
        lengths: real frames of each row, int64 [batch]; frames from there to the next row are padding.
        time: most frames of a row, padding included.
        context: frames on each side that a frame sees; None for all.
        launch: the division of the work, which affects only the speed.

    Returns:
        [..., width]. Values in the padding mean nothing.
    """
    heads, _, share = table.shape
    attended = merged.new_empty(*merged.shape[:-1], merged.size(-1) // 3)
    if not attended.numel():
        return attended
    channels = max(_LEAST_CHANNELS, triton.next_power_of_2(share))
    tile = max(_LEAST_TILE, min(launch.tile, _TILE_ROOM // (channels * merged.element_size() ** 2)))
    tiles = triton.cdiv(time, tile)
    grid = tiles, heads, lengths.size(0)
    if context is not None:
        tiles = min(tiles, triton.cdiv(tile + 2 * context, tile))
    _attend[grid](
        merged.contiguous(),
        table,
        content_bias,
        position_bias,
        starts,
        lengths,
        attended,
        table.size(1) // 2 + 1,
        table.stride(0),
        table.stride(1),
        1 / math.sqrt(share),
        HEADS=heads,
        SHARE=share,
        CHANNELS=channels,
        TILE=tile,
        TILES=tiles,
        CONTEXT=_FULL if context is None else context,
        num_stages=launch.stages,
        num_warps=launch.warps,
    )
    return attended
