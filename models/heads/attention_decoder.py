"""The decoder of an attention encoder-decoder (Vaswani et al., 2017) with pre-norm layers, as in Canary.

Canary: Puvvada et al., 2024, arXiv 2406.19674. Keys and values of earlier tokens (``Cache``) and of the encoder's
frames (``Memory``) are kept, so a step computes one token. ``forward`` allocates nothing that depends on data and reads
no value from the device, so a CUDA graph can capture it. On a GPU a layer of a step is eight kernels
(models/kernels/decoder_step.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, scaled_dot_product_attention

from models.config import AttentionDecoderConfig, DecoderActivation
from models.device.merged_linear import merged_linear
from models.encoders.attention import sinusoids
from models.encoders.masking import additive_mask, valid_positions
from models.heads.scores import product_of_scores
from models.kernels import DecoderStep, decoder_step_on

_ACTIVATIONS: dict[DecoderActivation, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu}
# NeMo rounds the number of outputs up, for tensor cores; outputs beyond the vocabulary are never chosen.
_OUTPUTS_MULTIPLE = 8


def padded_outputs(vocabulary_size: int) -> int:
    """Return the number of outputs of a decoder for a vocabulary."""
    return -(-vocabulary_size // _OUTPUTS_MULTIPLE) * _OUTPUTS_MULTIPLE


@dataclass(frozen=True, slots=True)
class Memory:
    """Keys and values of the encoder frames for each layer.

    Attributes:
        keys: for each layer, [batch, heads, frames, width / heads].
        values: for each layer, in the same shape.
        bias: 0 for the frames of an utterance and a very low number for padding, [batch, 1, 1, frames]. It is finite,
            so that an utterance without frames gives numbers.
        lengths: frames of each utterance, int64 [batch].
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    bias: Tensor
    lengths: Tensor

    def repeated(self, times: int) -> "Memory":
        """Return it with each row ``times`` times, side by side."""
        if times == 1:
            return self

        def several(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(tensor.repeat_interleave(times, 0) for tensor in tensors)

        return Memory(several(self.keys), several(self.values), *several((self.bias, self.lengths)))

    def replace_first(self, other: "Memory") -> None:
        """Overwrite the first rows with those of ``other``."""
        for mine, new in zip(self.tensors(), other.tensors(), strict=True):
            mine[: new.size(0)] = new

    def tensors(self) -> tuple[Tensor, ...]:
        """Return keys, values, bias and lengths."""
        return *self.keys, *self.values, self.bias, self.lengths


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of the tokens read so far, each [layers, batch, heads, capacity, width / heads]."""

    keys: Tensor
    values: Tensor

    def clear(self) -> None:
        """Forget the tokens; those that are not numbers would show through a mask, which multiplies them by 0."""
        self.keys.zero_()
        self.values.zero_()


class AttentionDecoder(nn.Module):
    """Scores the next token from the tokens before it and the encoder's frames.

    The output layer shares the embedding's weights (Press and Wolf, 2017), or has its own; its bias is its own.
    """

    def __init__(
        self, config: AttentionDecoderConfig, encoder_width: int, vocabulary_size: int, dropout: float = 0.0
    ) -> None:
        """Build a decoder with random weights; in training, ``dropout`` applies to each module's output."""
        super().__init__()
        outputs = padded_outputs(vocabulary_size)
        self.config = config
        self.vocabulary_size = vocabulary_size
        project = encoder_width != config.width
        self.encoder_projection = nn.Linear(encoder_width, config.width) if project else None
        self.embedding = nn.Embedding(outputs, config.width)
        self.positions: Tensor
        self.register_buffer("positions", position_table(config.positions, config.width))
        self.embedding_norm = nn.LayerNorm(config.width)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.output_weight = None if config.tied else nn.Parameter(torch.zeros(outputs, config.width))
        self.output_bias = nn.Parameter(torch.zeros(outputs))
        self.dropout = nn.Dropout(dropout)

    def memory(self, encoded: Tensor, lengths: Tensor) -> Memory:
        """Project encoder frames for every layer, once for all tokens.

        Args:
            encoded: [batch, frames, encoder width]; finite in the padding.
            lengths: frames of each row, [batch].
        """
        frames = encoded if self.encoder_projection is None else self.encoder_projection(encoded)
        attentions = [layer.cross_attention for layer in self.layers if isinstance(layer, DecoderLayer)]
        pairs = [attention.keys_and_values(frames) for attention in attentions]
        padding = ~valid_positions(lengths, frames.size(1))[:, None, None]
        bias = additive_mask(padding, frames.dtype)
        return Memory(tuple(keys for keys, _ in pairs), tuple(values for _, values in pairs), bias, lengths.clone())

    def cache(self, batch: int, capacity: int) -> Cache:
        """Return a cache for ``capacity`` tokens of each row."""
        heads = self.config.heads
        shape = (self.config.layers, batch, heads, capacity, self.config.width // heads)
        return Cache(self.output_bias.new_zeros(shape), self.output_bias.new_zeros(shape))

    def read(self, tokens: Tensor, memory: Memory) -> Tensor:
        """Read whole sequences at once, for training with teacher forcing.

        Args:
            tokens: [batch, n], int64; padding comes last and may be any tokens.
            memory: the encoder's frames.

        Returns:
            Logits [batch, n, outputs] of the token after each.
        """
        hidden = self.dropout(self.embedding_norm(self.embedding(tokens) + self.positions[: tokens.size(1)]))
        padding = memory.bias < 0
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            hidden = layer.read(hidden, (memory.keys[index], memory.values[index]), padding, self.dropout)
        return linear(self.norm(hidden), self._scoring_weight, self.output_bias)

    def forward(self, tokens: Tensor, positions: Tensor, memory: Memory, cache: Cache) -> Tensor:
        """Read tokens that follow those in the cache, and add them to it.

        Args:
            tokens: [batch, n], int64.
            positions: their positions in the sequence, from 0, [n], int64, the same for each row.
            memory: the encoder's frames.
            cache: that of the tokens before, with room for these.

        Returns:
            Logits [batch, n, outputs] of the token after each.
        """
        hidden: Tensor = self.embedding_norm(self.embedding(tokens) + self.positions[positions])
        kernels = self._kernels(hidden)
        if kernels is not None:
            hidden = self._after_layers(hidden[:, 0], positions, memory, cache, kernels)[:, None]
            return product_of_scores(self.norm(hidden), self._scoring_weight, self.output_bias)
        later = torch.arange(cache.keys.size(3), device=tokens.device) > positions[:, None]
        # Numbers, because attention would convert a bool mask again in each layer.
        before = additive_mask(later, hidden.dtype)
        for index, layer in enumerate(self.layers):
            past = cache.keys[index], cache.values[index]
            frames = memory.keys[index], memory.values[index]
            hidden = layer(hidden, positions, past, before, frames, memory.bias)
        return product_of_scores(self.norm(hidden), self._scoring_weight, self.output_bias)

    @property
    def _scoring_weight(self) -> Tensor:
        return self.embedding.weight if self.output_weight is None else self.output_weight

    def _kernels(self, hidden: Tensor) -> DecoderStep | None:
        """Return the kernels of a step, if this is one for inference on a GPU that has them."""
        is_folded = any(isinstance(layer, DecoderLayer) and layer.self_attention.merged for layer in self.layers)
        if hidden.size(1) != 1 or torch.is_grad_enabled() or not is_folded:
            return None
        return decoder_step_on(hidden.device, hidden.dtype)

    def _after_layers(
        self, hidden: Tensor, position: Tensor, memory: Memory, cache: Cache, kernels: DecoderStep
    ) -> Tensor:
        """Apply the layers to one token of each row, [batch, width], in kernels."""
        multiply, attend = kernels
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            own, cross, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
            assert own.merged is not None
            query = multiply(hidden, own.merged.weight, own.merged.bias, norm=_of_norm(own.norm))
            attended = attend(query, cache.keys[index], cache.values[index], position, own=True)
            hidden = multiply(attended, own.output.weight, own.output.bias, before=hidden)
            query = multiply(hidden, cross.query.weight, cross.query.bias, norm=_of_norm(cross.norm))
            attended = attend(query, memory.keys[index], memory.values[index], memory.lengths, own=False)
            hidden = multiply(attended, cross.output.weight, cross.output.bias, before=hidden)
            expand, contract, activation = feed.expand, feed.contract, self.config.activation
            expanded = multiply(hidden, expand.weight, expand.bias, norm=_of_norm(feed.norm), activation=activation)
            hidden = multiply(expanded, contract.weight, contract.bias, before=hidden)
        return hidden


def _of_norm(norm: nn.LayerNorm) -> tuple[Tensor, Tensor, float]:
    return norm.weight, norm.bias, norm.eps


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a feed-forward module, each added to what it reads."""

    def __init__(self, config: AttentionDecoderConfig) -> None:
        super().__init__()
        self.self_attention = Attention(config)
        self.cross_attention = Attention(config)
        self.feed_forward = FeedForward(config)

    def fold(self) -> None:
        """For inference, merge the products of self-attention into one."""
        self.self_attention.fold()

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        past: tuple[Tensor, Tensor],
        before: Tensor,
        frames: tuple[Tensor, Tensor],
        bias: Tensor,
    ) -> Tensor:
        """Apply the layer to tokens.

        Args:
            hidden: [batch, n, width].
            positions: positions of the tokens, [n].
            past: keys and values of the sequence, [batch, heads, capacity, width / heads]; those of these tokens are
                written into it.
            before: 0 for what each token may attend to, and a very low number for the rest of ``past``, [n, capacity].
            frames: keys and values of the encoder's frames.
            bias: added to the scores of the frames.
        """
        query, *own = self.self_attention.of_itself(self.self_attention.norm(hidden))
        for kept, new in zip(past, own, strict=True):
            kept.index_copy_(2, positions, new)
        hidden = hidden + self.self_attention.attended(query, *past, before)
        hidden = hidden + self.cross_attention(self.cross_attention.norm(hidden), *frames, bias)
        fed: Tensor = hidden + self.feed_forward(hidden)
        return fed

    def read(self, hidden: Tensor, frames: tuple[Tensor, Tensor], padding: Tensor, dropout: nn.Module) -> Tensor:
        """Apply the layer to whole sequences, for training.

        Args:
            hidden: [batch, n, width].
            frames: keys and values of the encoder's frames.
            padding: which frames are padding, bool [batch, 1, 1, frames].
            dropout: applied to each module's output.
        """
        normed = self.self_attention.norm(hidden)
        own = self.self_attention.keys_and_values(normed)
        hidden = hidden + dropout(self.self_attention(normed, *own, None))
        bias = additive_mask(padding, frames[0].dtype)  # the dtype of the products, which autocast may have changed
        hidden = hidden + dropout(self.cross_attention(self.cross_attention.norm(hidden), *frames, bias))
        fed: Tensor = hidden + dropout(self.feed_forward(hidden))
        return fed


class Attention(nn.Module):
    """Scaled dot-product attention over several heads, with the norm of the tokens that attend."""

    def __init__(self, config: AttentionDecoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = nn.LayerNorm(config.width)
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.output = nn.Linear(config.width, config.width)
        # Query, key and value in one product, once they are folded.
        self.merged: nn.Linear | None = None

    def fold(self) -> None:
        """Merge the products of query, key and value, for inference; for self-attention only."""
        self.merged = merged_linear([self.query, self.key, self.value])
        del self.query, self.key, self.value

    def of_itself(self, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value of ``normed`` [batch, n, width], each [batch, heads, n, width / heads]."""
        if self.merged is None:
            return self._by_head(self.query(normed)), *self.keys_and_values(normed)
        query, key, value = self.merged(normed).chunk(3, dim=2)
        return self._by_head(query), self._by_head(key), self._by_head(value)

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of ``source`` [batch, time, width], each [batch, heads, time, width / heads]."""
        return self._by_head(self.key(source)), self._by_head(self.value(source))

    def forward(self, normed: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from ``normed`` [batch, n, width].

        ``mask`` is that of ``scaled_dot_product_attention``; None is causal attention.
        """
        return self.attended(self._by_head(self.query(normed)), keys, values, mask)

    def attended(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from ``query`` [batch, heads, n, width / heads], and project; see ``forward``."""
        attended = scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=mask is None)
        projected: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return projected

    def _by_head(self, projected: Tensor) -> Tensor:
        return torch.unflatten(projected, 2, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Norm, expansion, activation, contraction."""

    def __init__(self, config: AttentionDecoderConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.expand = nn.Linear(config.width, config.feed_forward_width)
        self.contract = nn.Linear(config.feed_forward_width, config.width)
        self.activation = _ACTIVATIONS[config.activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """Apply to ``hidden`` [..., width]."""
        contracted: Tensor = self.contract(self.activation(self.expand(self.norm(hidden))))
        return contracted


def position_table(positions: int, width: int, *, paired: bool = True) -> Tensor:
    """Return sinusoids [positions, width] of the positions from 0 on, sines and cosines in pairs of one frequency.

    If not ``paired``, all sines come before all cosines, as in transformers. They are divided by the root of the width,
    as in NeMo, which does not scale embeddings up.
    """
    waves = sinusoids(torch.arange(positions), width)
    if not paired:
        waves = torch.cat((waves[:, ::2], waves[:, 1::2]), dim=1)
    return waves / math.sqrt(width)
