"""Self-attention by content and distance (models/encoders/attention.py) in one kernel, which writes no scores.

Plain operations write the scores by distance, twice as many as there are scores, read them shifted, mask them, and
write them again before the softmax. Here a program has a tile of queries of one head, and visits the keys of its row
tile by tile with a running softmax (Milakov and Gimelshein, 2018; Dao et al., 2022). It reads no keys of padding.

Scores by distance are products with blocks of distances; a block has as many as a tile has keys. With both counted
within their tiles, key j is in column (j - i - 1) modulo that number for query i, in every block. So the row of query i
is rotated once, and the rotated block serves each tile of keys that it reaches: a tile needs one new block, and has the
others from the tiles before it. All sums are float32.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from models.config import AttentionContext

_LEAST_TILE = 16  # the smallest for tensor cores
_LEAST_CHANNELS = 16
# Limit on channels x queries x the square of a value's bytes, so that registers suffice.
_TILE_ROOM = 128 * 64 * 2**2
_FULL = -1


class Launch(NamedTuple):
    """The division of the work.

    Attributes:
        tile: most queries of a program; a power of two.
        keys: most keys that a program reads at a time: ``tile``, or half of it.
        warps: warps of a program.
        stages: tiles of keys that are loaded at the same time; with two, one is loaded while one is computed.
        rereads: whether queries are loaded again for each tile of keys, instead of kept in registers.
    """

    tile: int
    keys: int
    warps: int = 4
    stages: int = 2
    rereads: bool = False


# Hopper's tensor cores and those of a B200 take factors from shared memory. Others take them from registers, of which
# 64 queries need more than there are.
LAUNCH, LAUNCH_FROM_REGISTERS = Launch(64, 32), Launch(32, 32, rereads=True)


@cache
def usual_launch(device: torch.device) -> Launch:
    """Return the launch that suits a device."""
    takes_registers = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] not in (9, 10)
    return LAUNCH_FROM_REGISTERS if takes_registers else LAUNCH


@triton.jit
def _inside(real, known, ALL_KNOWN: tl.constexpr):
    """Return a mask of rows by channels that allows wide loads if all channels exist."""
    inside = real[:, None]
    if not ALL_KNOWN:
        inside = inside & known[None, :]
    return inside


@triton.jit
def _by_distance(
    with_position,
    table,
    first,
    reach,
    table_row,
    turned,
    channel,
    known,
    KEYS: tl.constexpr,
    ALL_KNOWN: tl.constexpr,
):
    """Return the scores of a block of distances, from row ``first`` of the table on, rotated to each query's keys."""
    row = first + tl.arange(0, KEYS)
    inside = _inside((row >= 0) & (row < 2 * reach - 1), known, ALL_KNOWN)
    distances = tl.load(table + row[:, None] * table_row + channel[None, :], mask=inside, other=0.0)
    return tl.gather(tl.dot(with_position, tl.trans(distances), input_precision="ieee"), turned, 1)


@triton.jit(do_not_specialize=["reach"])
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
    KEYS: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    CHUNK: tl.constexpr,
    REREADS: tl.constexpr,
):
    """Compute a tile of queries of one head of one row of the batch."""
    begin, head, row = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2)
    start, length = tl.load(starts + row), tl.load(lengths + row).to(tl.int32)
    room = (tl.load(starts + row + 1) - start).to(tl.int32)
    if begin >= room:
        return
    width = HEADS * SHARE
    channel, place, column = tl.arange(0, CHANNELS), tl.arange(0, TILE), tl.arange(0, KEYS)
    known = channel < SHARE
    query = begin + place
    own = start * 3 * width + head * SHARE
    place_of_query = merged + own + query[:, None] * (3 * width) + channel[None, :]
    asked = tl.load(place_of_query, mask=_inside(query < length, known, CHANNELS == SHARE), other=0.0)
    biases = head * SHARE + channel
    of_content = tl.load(content_bias + biases, mask=known, other=0.0)[None, :]
    of_position = tl.load(position_bias + biases, mask=known, other=0.0)[None, :]
    with_content, with_position = asked + of_content, asked + of_position
    best = tl.full((TILE,), -1e30, tl.float32)
    mass = tl.zeros((TILE,), tl.float32)
    total = tl.zeros((TILE, CHANNELS), tl.float32)
    first = begin * 0
    last = length
    if LEFT >= 0:
        first = tl.maximum(begin // CHUNK * CHUNK - LEFT, 0)
    if RIGHT >= 0:
        last = tl.minimum(length, (begin + TILE - 1) // CHUNK * CHUNK + RIGHT + 1)
    # Row reach - 1 - d of the table has distance d. The last query and the first key are farthest apart.
    farthest = reach - begin - TILE
    own_table = table + head * table_head
    apart = column[None, :] - place[:, None] + TILE - 1  # of query and key, in distances from the farthest
    turned = tl.broadcast_to((apart & (KEYS - 1)), (TILE, KEYS))
    near = _by_distance(
        with_position, own_table, farthest + first + TILE - KEYS, reach, table_row, turned, channel, known, KEYS,
        CHANNELS == SHARE,
    )  # fmt: skip
    is_late = (place >= KEYS)[:, None]
    far = near
    if KEYS < TILE:
        farther = _by_distance(
            with_position, own_table, farthest + first, reach, table_row, turned, channel, known, KEYS,
            CHANNELS == SHARE,
        )  # fmt: skip
        far = tl.where(is_late, farther, near)
    for begin_of_keys in range(first, last, KEYS):
        key = begin_of_keys + column
        there = key < length
        inside = _inside(there, known, CHANNELS == SHARE)
        place_of_key = merged + own + key[:, None] * (3 * width) + channel[None, :]
        keys = tl.load(place_of_key + width, mask=inside, other=0.0)
        values = tl.load(place_of_key + 2 * width, mask=inside, other=0.0)
        if REREADS:
            # The same mask as above, hidden from the compiler, which would otherwise load once and keep registers.
            again = _inside((query < length) & (begin_of_keys >= 0), known, CHANNELS == SHARE)
            asked = tl.load(place_of_query, mask=again, other=0.0)
            with_content, with_position = asked + of_content, asked + of_position
        nearest = _by_distance(
            with_position, own_table, farthest + begin_of_keys + TILE, reach, table_row, turned, channel, known, KEYS,
            CHANNELS == SHARE,
        )  # fmt: skip
        if KEYS < TILE:
            by_distance = tl.where(apart < TILE, tl.where(is_late & (apart >= KEYS), near, far), nearest)
            far = tl.where(is_late, near, nearest)
        else:
            by_distance = tl.where(apart < TILE, near, nearest)
        near = nearest
        scores = by_distance + tl.dot(with_content, tl.trans(keys), input_precision="ieee")
        visible = there[None, :]
        chunks = query[:, None] // CHUNK - key[None, :] // CHUNK
        if LEFT >= 0:
            visible = visible & (chunks <= LEFT // CHUNK)
        if RIGHT >= 0:
            visible = visible & (chunks >= -(RIGHT // CHUNK))
        # Finite, so that a row without visible keys gives numbers.
        scores = tl.where(visible, scores * scale, -1e30)
        top = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp(scores - top[:, None])
        kept = tl.exp(best - top)
        total = total * kept[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        mass = mass * kept + tl.sum(weights, axis=1)
        best = top
    result = (total / tl.where(mass > 0, mass, 1.0)[:, None]).to(attended.dtype.element_ty)
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
    context: AttentionContext | None,
    launch: Launch | None = None,
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
        context: the frames that a frame sees; None for all.
        launch: the division of the work, which changes the speed only; None chooses it for the device.

    Returns:
        [..., width]. Values in the padding mean nothing.
    """
    launch = launch or usual_launch(merged.device)
    heads, _, share = table.shape
    attended = merged.new_empty(*merged.shape[:-1], merged.size(-1) // 3)
    if not attended.numel():
        return attended
    channels = max(_LEAST_CHANNELS, triton.next_power_of_2(share))
    tile = max(_LEAST_TILE, min(launch.tile, _TILE_ROOM // (channels * merged.element_size() ** 2)))
    grid = triton.cdiv(time, tile), heads, lengths.size(0)
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
        KEYS=min(tile, launch.keys),
        LEFT=_FULL if context is None or context.left is None else context.left,
        RIGHT=_FULL if context is None or context.right is None else context.right,
        CHUNK=context.right + 1 if context and context.in_chunks and context.right is not None else 1,
        REREADS=launch.rereads,
        num_stages=launch.stages,
        num_warps=launch.warps,
    )
    return attended
