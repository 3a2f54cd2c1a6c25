"""Self-attention with relative positions (Dai et al., 2019, Transformer-XL), as the Conformer uses it."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from models.config import ConformerConfig

_LONGEST_WAVELENGTH = 10_000.0
_SCORES_PER_BLOCK = 2**20
_LEAST_BLOCK = 16


def relative_positions(frames: int, width: int, device: torch.device) -> Tensor:
    """Return sinusoids [2 * frames - 1, width], float32, of the distances ``frames - 1`` down to ``1 - frames``.

    Even columns hold sines and odd ones cosines, in pairs of one frequency.
    """
    distances = torch.arange(frames - 1, -frames, -1, device=device, dtype=torch.float32)
    pairs = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    angles = distances[:, None] * torch.exp(pairs * (-math.log(_LONGEST_WAVELENGTH) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class RelativeAttention(nn.Module):
    """Full self-attention whose scores depend on content and on distance.

    The score of query i and key j is (q_i + u) k_j + (q_i + v) p_(i - j), over the root of the head's width, where p
    is the projected sinusoid of the distance, and u (``content_bias``) and v (``position_bias``) are learned.
    """

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = nn.LayerNorm(config.width)
        self.query = nn.Linear(config.width, config.width, bias=config.bias)
        self.key = nn.Linear(config.width, config.width, bias=config.bias)
        self.value = nn.Linear(config.width, config.width, bias=config.bias)
        self.position = nn.Linear(config.width, config.width, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=config.bias)
        self.content_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))
        self.position_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))

    def forward(self, frames: Tensor, positions: Tensor, valid: Tensor) -> Tensor:
        """Attend.

        Args:
            frames: [batch, time, width].
            positions: sinusoids of the distances, [2 * time - 1, width].
            valid: which frames may be attended to, bool [batch, time].

        Returns:
            [batch, time, width]. Frames that are not valid attend too, and what they give means nothing.
        """
        normed = self.norm(frames)
        query = torch.unflatten(self.query(normed), 2, (self.heads, -1))
        key = self._by_head(self.key(normed))
        value = self._by_head(self.value(normed))
        position = self._by_head(self.position(positions)[None]).transpose(2, 3)

        with_content = (query + self.content_bias).transpose(1, 2)
        with_position = (query + self.position_bias).transpose(1, 2) / math.sqrt(query.size(-1))
        time, blocks = frames.size(1), []
        for first, last in _blocks(time, frames.size(0) * self.heads, frames.device):
            # Only the distances between these queries and any key.
            by_distance = with_position[:, :, first:last] @ position[..., time - last : 2 * time - 1 - first]
            # Finite, so that a row without any valid frame gives numbers; its weight is 0 where a valid key is left.
            bias = _by_key(by_distance, time).masked_fill(~valid[:, None, None], torch.finfo(by_distance.dtype).min)
            blocks.append(scaled_dot_product_attention(with_content[:, :, first:last], key, value, attn_mask=bias))
        projected: Tensor = self.output(torch.cat(blocks, dim=2).transpose(1, 2).flatten(2))
        return projected

    def _by_head(self, projected: Tensor) -> Tensor:
        """Return ``projected`` [batch, time, width] as [batch, heads, time, width / heads]."""
        return torch.unflatten(projected, 2, (self.heads, -1)).transpose(1, 2)


def _blocks(time: int, rows_per_query: int, device: torch.device) -> Iterator[tuple[int, int]]:
    """Yield the queries in blocks, first and last + 1, whose scores a CPU keeps in its caches.

    Scores of minutes are gigabytes in all, which a CPU spends its time on fetching from the system and giving back. A
    GPU takes all queries at once: there, every block would cost kernel launches.
    """
    size = time if device.type != "cpu" else max(_LEAST_BLOCK, _SCORES_PER_BLOCK // (rows_per_query * time))
    for first in range(0, time, size):
        yield first, min(first + size, time)


def _by_key(by_distance: Tensor, keys: int) -> Tensor:
    """Turn scores by distance [batch, heads, n, keys + n - 1] into scores by key [batch, heads, n, keys], a view.

    Query i of n finds key j at column n - 1 - i + j: each row starts one column earlier than the row above it, so the
    same memory read in rows that are one shorter has every key in its own column.
    """
    by_distance = by_distance.contiguous()
    batch, heads, queries, columns = by_distance.shape
    strides = (*by_distance.stride()[:2], columns - 1, 1)
    return by_distance.as_strided((batch, heads, queries, keys), strides, by_distance.storage_offset() + queries - 1)
