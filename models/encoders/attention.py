"""Self-attention with relative positions (Dai et al., 2019, Transformer-XL), as the Conformer uses it."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from models.config import ConformerConfig

_LONGEST_WAVELENGTH = 10_000.0


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
        position = self._by_head(self.position(positions)[None])

        with_content = (query + self.content_bias).transpose(1, 2)
        with_position = (query + self.position_bias).transpose(1, 2) / math.sqrt(query.size(-1))
        bias = _by_key(with_position @ position.transpose(2, 3))
        # Finite, so that a row without any valid frame gives numbers; its weight is 0 wherever a valid key is left.
        bias = bias.masked_fill(~valid[:, None, None], torch.finfo(bias.dtype).min)
        attended = scaled_dot_product_attention(with_content, key, value, attn_mask=bias)
        projected: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return projected

    def _by_head(self, projected: Tensor) -> Tensor:
        """Return ``projected`` [batch, time, width] as [batch, heads, time, width / heads]."""
        return torch.unflatten(projected, 2, (self.heads, -1)).transpose(1, 2)


def _by_key(by_distance: Tensor) -> Tensor:
    """Turn scores by distance [batch, heads, time, 2 * time - 1] into scores by key [batch, heads, time, time].

    Query i finds key j at column time - 1 - i + j: each row starts one column earlier than the row above it. One
    column more than the rows have, and the same memory read in rows one shorter, does that without an index.
    """
    time = by_distance.size(2)
    widened = pad(by_distance, (1, 0)).flatten(2)[:, :, time:]
    return torch.unflatten(widened, 2, (time, 2 * time - 1))[..., :time]
