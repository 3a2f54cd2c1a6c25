"""A token is scored from all before it, however many of them are read at once, and from its own frames."""

import math
from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import AttentionDecoderConfig
from models.heads.attention_decoder import AttentionDecoder

LABELS = 21


def decoder(layers=2, heads=2, encoder_width=16, activation="relu"):
    torch.manual_seed(0)
    config = AttentionDecoderConfig(
        width=16,
        layers=layers,
        heads=heads,
        feed_forward_width=24,
        activation=activation,
        positions=32,
        length_margin=None,
    )
    return AttentionDecoder(config, encoder_width, LABELS).eval().requires_grad_(False)


def read(module, tokens, cuts, memory, capacity=32):
    """Logits of all tokens, which are read in pieces that end at ``cuts``."""
    cache = module.cache(tokens.size(0), capacity)
    bounds = [0, *sorted(cuts), tokens.size(1)]
    return torch.cat(
        [
            module(tokens[:, first:last], torch.arange(first, last), memory, cache)
            for first, last in pairwise(bounds)
            if first < last
        ],
        dim=1,
    )


@given(
    layers=st.integers(1, 3),
    heads=st.sampled_from([1, 2, 4]),
    encoder_width=st.sampled_from([16, 12]),
    batch=st.integers(1, 3),
    length=st.integers(1, 20),
    cuts=st.sets(st.integers(1, 19)),
    capacity=st.integers(20, 32),
)
@settings(max_examples=40, deadline=None)
def test_tokens_read_one_by_one_give_what_they_give_at_once(
    layers, heads, encoder_width, batch, length, cuts, capacity
):
    module = decoder(layers, heads, encoder_width)
    tokens = torch.randint(LABELS, (batch, length))
    memory = module.memory(torch.randn(batch, 7, encoder_width), torch.randint(0, 8, (batch,)))

    at_once = read(module, tokens, [], memory)
    in_pieces = read(module, tokens, [cut for cut in cuts if cut < length], memory, capacity)
    one_by_one = read(module, tokens, range(1, length), memory)

    torch.testing.assert_close(in_pieces, at_once, rtol=0, atol=1e-5)
    torch.testing.assert_close(one_by_one, at_once, rtol=0, atol=1e-5)


def test_it_equals_torchs_own_attention_on_whole_sequences():
    """The same in torch's own attention, layer by layer, for whole sequences."""
    module = decoder(activation="gelu")
    tokens, encoded = torch.randint(LABELS, (1, 9)), torch.randn(1, 5, 16)

    def attend(attention, queries, source, mask=None):
        def heads(linear, frames):
            return linear(frames).unflatten(2, (2, 8)).transpose(1, 2)

        scores = heads(attention.query, queries) @ heads(attention.key, source).transpose(2, 3) / math.sqrt(8)
        weights = (scores if mask is None else scores.masked_fill(mask, -math.inf)).softmax(-1)
        return attention.output((weights @ heads(attention.value, source)).transpose(1, 2).flatten(2))

    hidden = module.embedding_norm(module.embedding(tokens) + module.positions[:9])
    later = torch.ones(9, 9, dtype=torch.bool).triu(1)
    for layer in module.layers:
        normed = layer.self_attention.norm(hidden)
        hidden = hidden + attend(layer.self_attention, normed, normed, later)
        hidden = hidden + attend(layer.cross_attention, layer.cross_attention.norm(hidden), encoded)
        feed_forward = layer.feed_forward
        inner = torch.nn.functional.gelu(feed_forward.expand(feed_forward.norm(hidden)))
        hidden = hidden + feed_forward.contract(inner)
    expected = module.norm(hidden) @ module.embedding.weight.T + module.output_bias

    found = read(module, tokens, [], module.memory(encoded, torch.tensor([5])))

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@given(frames=st.integers(0, 6), extra=st.integers(0, 5), value=st.sampled_from([0.0, 7.0, -1e4]))
@settings(max_examples=25, deadline=None)
def test_frames_past_an_utterance_change_nothing(frames, extra, value):
    module = decoder()
    tokens = torch.randint(LABELS, (2, 4))
    encoded = torch.randn(2, 6 + extra, 16)
    lengths = torch.tensor([frames, 6])
    filled = encoded.clone()
    filled[0, frames:] = value

    found = read(module, tokens, [], module.memory(filled, lengths))
    alone = read(module, tokens[:1], [], module.memory(encoded[:1, :frames], lengths[:1])) if frames else found[:1]

    assert found.isfinite().all()
    torch.testing.assert_close(found[:1], alone, rtol=0, atol=1e-5)
