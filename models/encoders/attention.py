"""Self-attention of the Conformer: over a whole clip, or over a band of neighbours around each frame."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, scaled_dot_product_attention

from models.config import AttentionContext, ConformerConfig
from models.device.merged_linear import merged_linear
from models.encoders.masking import additive_mask
from models.encoders.padding import Padding
from models.kernels import relative_attention_on

_LONGEST_WAVELENGTH = 10_000.0
_SCORES_PER_BLOCK = 2**20
_LEAST_BLOCK = 16
# When a model is folded, distances below this number of frames are projected once: for clips of up to 41 s at the usual
# 80 ms, the longest parts of recordings among them. That adds a 22nd to the memory of a layer of width 1024.
_FRAMES_IN_TABLE = 544
# The number of columns of scores is a multiple of this, for tensor cores.
_COLUMNS = 8
# In bfloat16 on a CPU, inference pads a block's keys to a multiple of this: softmax takes twice as long over the rest.
_KEYS_ON_CPU = 32


def sinusoids(places: Tensor, width: int) -> Tensor:
    """Return sinusoids [n, width], float32, of ``places`` [n] (Vaswani et al., 2017).

    Even columns hold sines and odd ones cosines, in pairs of one frequency.
    """
    pairs = torch.arange(0, width, 2, device=places.device, dtype=torch.float32)
    angles = places.float()[:, None] * torch.exp(pairs * (-math.log(_LONGEST_WAVELENGTH) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def relative_positions(frames: int, width: int, device: torch.device) -> Tensor:
    """Return sinusoids [2 * frames - 1, width], float32, of the distances ``frames - 1`` down to ``1 - frames``."""
    return sinusoids(torch.arange(frames - 1, -frames, -1, device=device), width)


def frames_within_reach(time: int, context: AttentionContext | None) -> int:
    """Return a number above the distances of queries and keys, padded ones too, in any block of ``time`` frames."""
    band = _band(context)
    return (time if band is None else min(time, max(band) + _band_block(band))) + _KEYS_ON_CPU - 1


class Block(NamedTuple):
    """Queries from ``first`` up to ``last``, and the keys from ``low`` up to ``high`` that they may see."""

    first: int
    last: int
    low: int
    high: int


class RelativeAttention(nn.Module):
    """Self-attention whose scores depend on content and on distance (Dai et al., 2019, Transformer-XL).

    The score of query i and key j is (q_i + u) k_j + (q_i + v) p_(i - j), over the root of the head's width, where p
    is the projected sinusoid of the distance, and u (``content_bias``) and v (``position_bias``) are learned.
    """

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.context = config.attention_context
        self.global_tokens = config.global_tokens
        self.norm = nn.LayerNorm(config.width)
        self.query = nn.Linear(config.width, config.width, bias=config.bias)
        self.key = nn.Linear(config.width, config.width, bias=config.bias)
        self.value = nn.Linear(config.width, config.width, bias=config.bias)
        self.output = nn.Linear(config.width, config.width, bias=config.bias)
        # Query, key and value in one product; None before ``fold``.
        self.merged: nn.Linear | None = None
        self.position = nn.Linear(config.width, config.width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))
        self.position_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))
        # The projected sinusoids of distances, [heads, 2 * _FRAMES_IN_TABLE - 1, width / heads]; None before ``fold``.
        self.table: Tensor | None
        self.register_buffer("table", None, persistent=False)

    @torch.no_grad()
    def fold(self) -> None:
        """For inference, merge the products of query, key and value, and project the distances of most clips once."""
        self.merged = merged_linear([self.query, self.key, self.value])
        del self.query, self.key, self.value
        weight = self.position.weight
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))  # a checkpoint may store half precision
        positions = relative_positions(_FRAMES_IN_TABLE, weight.size(1), weight.device)
        self.table = self._by_distance(linear(positions.to(weight.dtype), weight)).contiguous()

    def forward(self, normed: Tensor, positions: Tensor, padding: Padding) -> Tensor:
        """Attend.

        Args:
            normed: frames after ``norm``, [batch, time, width], or [1, frames, width] without their padding.
            positions: sinusoids of the distances r - 1 down to 1 - r, [2 * r - 1, width], with r of
                ``frames_within_reach``.
            padding: the batch's padding; no frame attends to it.

        Returns:
            Frames in the shape of ``normed``. Those of padding mean nothing.
        """
        merged = None if torch.is_grad_enabled() else self.merged
        has_kernel = merged is not None and not self.global_tokens
        kernel = relative_attention_on(normed.device, normed.dtype, self.content_bias.size(1)) if has_kernel else None
        if merged is None or kernel is None:
            return self.attended(normed, positions, padding)
        table, biases = self._table_for(positions), (self.content_bias, self.position_bias)
        rows = padding.starts, padding.lengths, padding.time
        projected: Tensor = self.output(kernel(merged(normed), table, *biases, *rows, self.context))
        return projected

    def attended(self, normed: Tensor, positions: Tensor, padding: Padding) -> Tensor:
        """Attend by plain operations; see ``forward``."""
        query, key, value = self._projected(normed, padding)
        query, key, value = torch.unflatten(query, 2, (self.heads, -1)), self._by_head(key), self._by_head(value)
        with_content = (query + self.content_bias).transpose(1, 2)
        position_scores = self._position_scores(query, positions)
        in_products = normed.device.type == "cpu" and not _in_training_on_cpu()
        attend = _attended_in_products if in_products else scaled_dot_product_attention
        of_global = self._penalty_of_global(key[:, :, :1]) if self.global_tokens else None
        attended = []
        for block in _blocks(query.size(1), query.size(0) * self.heads, query.device, self.context):
            first, last, low, high = block
            spare = (low - high) % _KEYS_ON_CPU if in_products and query.dtype is torch.bfloat16 else 0
            bias = position_scores(block, high - low + spare)
            if spare or self.context is not None or not padding.is_none:
                bias = bias + self._penalties(padding, block, spare, query.dtype)
            queries, keys, values = with_content[:, :, first:last], key[:, :, low:high], value[:, :, low:high]
            if of_global is not None:
                # The global token's key is added to the keys of every band.
                keys, values = torch.cat((key[:, :, :1], keys), dim=2), torch.cat((value[:, :, :1], values), dim=2)
                bias = torch.cat((of_global.expand(*bias.shape[:3], 1), bias), dim=3)
            attended.append(attend(queries, keys, values, bias))
        if self.global_tokens:
            attended[0] = torch.cat((_attended_by_first(query, key, value, padding), attended[0][:, :, 1:]), dim=2)
        rows = (attended[0] if len(attended) == 1 else torch.cat(attended, dim=2)).transpose(1, 2).flatten(2)
        projected: Tensor = self.output(padding.without(rows))
        return projected

    def _projected(self, normed: Tensor, padding: Padding) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value, each [batch, time, width]."""
        if self.merged is not None:
            query, key, value = padding.with_it(self.merged(normed)).chunk(3, dim=2)
        else:
            query, key, value = (padding.with_it(product(normed)) for product in (self.query, self.key, self.value))
        return query, key, value

    def _penalties(self, padding: Padding, block: Block, spare: int, dtype: torch.dtype) -> Tensor:
        """Return the mask of a block's scores, for keys that may not be seen and ``spare`` columns after the keys.

        It is added, and broadcasts to [batch, heads, n, keys + spare]. It is finite, so that a row without any valid
        frame gives numbers; where there is a valid key, masked ones get a weight of 0.
        """

        def compute() -> Tensor:
            visible = pad(self._visible(padding.valid, block), (0, spare))
            return additive_mask(~visible, dtype)

        if self.context is None:
            return padding.once((spare, dtype), compute)
        # Each block has its own; those of long clips are large, and not kept.
        return padding.once((block, spare, dtype), compute) if padding.time <= _FRAMES_IN_TABLE else compute()

    def _visible(self, valid: Tensor, block: Block) -> Tensor:
        """Return which keys each query may see, bool, in a shape that broadcasts to [batch, heads, n, keys]."""
        visible = valid[:, None, None, block.low : block.high]
        if self.context is None:
            return visible
        queries = torch.arange(block.first, block.last, device=valid.device)
        keys = torch.arange(block.low, block.high, device=valid.device)
        return visible & _seen(self.context, queries[:, None], keys)

    def _by_head(self, projected: Tensor) -> Tensor:
        """Return ``projected`` [batch, time, width] as [batch, heads, time, width / heads]."""
        return torch.unflatten(projected, 2, (self.heads, -1)).transpose(1, 2)

    def _penalty_of_global(self, key: Tensor) -> Tensor:
        """Return what ``content_bias`` adds to the scores of a global key, negated, [batch, heads, 1, 1]."""
        scores = (self.content_bias[None, :, None] * key).sum(dim=3, keepdim=True)
        return scores / -math.sqrt(key.size(-1))

    def _position_scores(self, query: Tensor, positions: Tensor) -> Callable[[Block, int], Tensor]:
        """Return a function that returns the scores by distance, [batch, heads, n, keys], for a block and its keys."""
        # Heads come first: projected distances are the same for all rows, so one product is enough for them.
        with_position = (query + self.position_bias).permute(2, 0, 1, 3)
        share = 1 / math.sqrt(query.size(-1))
        table = self._table_for(positions)
        reach = table.size(1) // 2 + 1

        def scores(block: Block, keys: int) -> Tensor:
            # Only the distances between these queries and these keys, and a few more to fill up columns.
            begin, columns = reach + block.low - block.last, keys + block.last - block.first - 1
            near = table[:, begin : begin + columns + -columns % _COLUMNS]
            queries = with_position[:, :, block.first : block.last]
            by_distance = _scaled_products(queries.flatten(1, 2), near.transpose(1, 2), share)
            return _by_key(torch.unflatten(by_distance, 1, queries.shape[1:3]).transpose(0, 1), keys)

        return scores

    def _table_for(self, positions: Tensor) -> Tensor:
        """Return the projected distances, those of ``positions`` or more, [heads, 2 * reach - 1, width / heads]."""
        if self.table is not None and positions.size(0) <= self.table.size(1):
            return self.table
        return self._by_distance(self.position(positions))

    def _by_distance(self, projected: Tensor) -> Tensor:
        """Return the projected sinusoids [distances, width] of each head, [heads, distances, width / heads]."""
        return torch.unflatten(projected, 1, (self.heads, -1)).transpose(0, 1)


def _scaled_products(left: Tensor, right: Tensor, share: float) -> Tensor:
    """Return ``share`` times the product of matrices, [batch, n, columns], in one pass."""
    # With beta 0, the values of the added tensor are not read.
    return torch.baddbmm(left.new_empty(1, 1, 1), left, right, beta=0, alpha=share)


def _attended_by_first(query: Tensor, key: Tensor, value: Tensor, padding: Padding) -> Tensor:
    """Attend from the first frame, a global token, to the whole clip, by content alone.

    Args:
        query: [batch, time, heads, width / heads].
        key: [batch, heads, time, width / heads]; ``value`` alike.
        value: see ``key``.
        padding: the batch's padding; no frame attends to it.

    Returns:
        [batch, heads, 1, width / heads].
    """
    mask = additive_mask(~padding.valid[:, None, None], query.dtype)
    return scaled_dot_product_attention(query[:, :1].transpose(1, 2), key, value, mask)


def _in_training_on_cpu() -> bool:
    # Autocast would not convert all inputs of the products.
    return torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")


def _attended_in_products(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Attend to a block on a CPU, faster than PyTorch's attention.

    Args:
        queries: [batch, heads, n, width].
        keys: [batch, heads, keys, width].
        values: [batch, heads, keys, width].
        bias: added to the scores; broadcasts to [batch, heads, n, keys or more], and masks the columns beyond the keys.
            It is overwritten if it has that shape.

    Returns:
        [batch, heads, n, width].
    """
    batch, heads, count, width = queries.shape
    spare = (0, 0, 0, bias.size(3) - keys.size(2))
    if any(spare):
        keys, values = pad(keys, spare), pad(values, spare)
    keys, values = keys.flatten(0, 1), values.flatten(0, 1)
    scores = bias.expand(batch, heads, count, -1).flatten(0, 1).contiguous()
    alpha = 1 / math.sqrt(width)
    torch.baddbmm(scores, queries.flatten(0, 1), keys.transpose(1, 2), alpha=alpha, out=scores)
    return torch.unflatten(torch.softmax(scores, dim=2, out=scores) @ values, 0, (batch, heads))


def _seen(context: AttentionContext, queries: Tensor, keys: Tensor) -> Tensor:
    """Return whether queries attend to keys, bool; both are numbers of frames, and are broadcast."""
    if context.in_chunks and context.right is not None:
        size = context.right + 1
        apart = queries // size - keys // size
        return (apart >= 0) if context.left is None else (apart >= 0) & (apart <= context.left // size)
    apart = queries - keys
    seen = torch.ones_like(apart, dtype=torch.bool)
    if context.left is not None:
        seen = seen & (apart <= context.left)
    return seen if context.right is None else seen & (-apart <= context.right)


def _band(context: AttentionContext | None) -> tuple[int, int] | None:
    """Return the most frames that a frame sees before it and after it; None if a side has no limit."""
    if context is None or context.before is None or context.right is None:
        return None
    return context.before, context.right


def _blocks(time: int, rows_per_query: int, device: torch.device, context: AttentionContext | None) -> Iterator[Block]:
    """Yield the queries in blocks whose scores a CPU keeps in its caches.

    All scores of some minutes are gigabytes, and a CPU would spend its time on allocating them. A GPU takes all queries
    of full attention at once, because each block costs kernel launches. With local attention, blocks skip most of the
    masked scores, so that time and memory are linear in the length of a clip on both.
    """
    band = _band(context)
    if band is not None:
        size = _band_block(band)
    else:
        size = time if device.type != "cpu" else max(_LEAST_BLOCK, _SCORES_PER_BLOCK // max(1, rows_per_query * time))
    for first in range(0, time, size):
        last = min(first + size, time)
        low, high = (0, time) if band is None else (max(0, first - band[0]), min(time, last + band[1]))
        yield Block(first, last, low, high)


def _band_block(band: tuple[int, int]) -> int:
    """Return how many queries of local attention form a block: a third of the scores are then computed and masked."""
    return max(_LEAST_BLOCK, *band)


def _by_key(by_distance: Tensor, keys: int) -> Tensor:
    """Turn scores by distance [batch, heads, n, columns] into scores by key [batch, heads, n, keys], a view.

    Query i of n finds key j at column n - 1 - i + j: each row starts one column earlier than the row above it, so the
    same memory read in rows that are one shorter has every key in its own column.

    Args:
        by_distance: the scores, contiguous for each head of a row; columns past keys + n - 1 are not read.
        keys: number of keys.
    """
    queries, columns = by_distance.shape[2:]
    strides = (*by_distance.stride()[:2], columns - 1, 1)
    size = (*by_distance.shape[:2], queries, keys)
    return by_distance.as_strided(size, strides, by_distance.storage_offset() + queries - 1)
