"""Relative self-attention against its definition."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import ConformerConfig
from models.encoders.attention import RelativeAttention, relative_positions


def attention(heads, width, *, bias=True):
    torch.manual_seed(0)
    sizes = {"mels": 16, "layers": 1, "feed_forward_width": 8, "kernel_size": 3, "scale_input": False}
    subsampling = {"subsampling": "striding", "subsampling_factor": 2, "subsampling_channels": 4}
    module = RelativeAttention(ConformerConfig(width=width, heads=heads, bias=bias, **sizes, **subsampling)).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def pair_by_pair(module, frames, length):
    """Attention of one row, score by score; frames [time, width]."""
    normed, width = module.norm(frames), frames.size(1)
    share = width // module.heads
    heads = []
    for head in range(module.heads):
        part = slice(head * share, (head + 1) * share)
        query, key, value = (layer(normed)[:, part] for layer in (module.query, module.key, module.value))
        scores = torch.empty(len(frames), length, dtype=frames.dtype)
        for i in range(len(frames)):
            for j in range(length):
                sinusoid = [
                    f((i - j) * 10_000 ** (-m / width)) for m in range(0, width, 2) for f in (math.sin, math.cos)
                ]
                position = module.position(torch.tensor(sinusoid, dtype=frames.dtype))[part]
                content = (query[i] + module.content_bias[head]) @ key[j]
                distance = (query[i] + module.position_bias[head]) @ position
                scores[i, j] = (content + distance) / math.sqrt(share)
        heads.append(scores.softmax(-1) @ value[:length])
    return module.output(torch.cat(heads, dim=-1))


@given(time=st.integers(1, 6), padding=st.integers(0, 3), heads=st.sampled_from([1, 2, 4]), bias=st.booleans())
@settings(max_examples=25, deadline=None)
@torch.no_grad()
def test_it_equals_its_definition_pair_by_pair(time, padding, heads, bias):
    module = attention(heads, 8, bias=bias)
    frames = torch.randn(1, time + padding, 8, dtype=torch.float64)
    valid = torch.arange(time + padding)[None] < time
    positions = relative_positions(time + padding, 8, frames.device).double()

    attended = module(frames, positions, valid)

    # The sinusoids are computed in float32, as NeMo's are.
    torch.testing.assert_close(attended[0, :time], pair_by_pair(module, frames[0], time)[:time], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_row_without_a_valid_frame_gives_numbers():
    module = attention(2, 8)
    positions = relative_positions(3, 8, torch.device("cpu")).double()

    attended = module(torch.randn(1, 3, 8, dtype=torch.float64), positions, torch.zeros(1, 3, dtype=torch.bool))

    assert attended.isfinite().all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 3), st.integers(1, 40))
def test_queries_in_blocks_attend_as_all_at_once(time, batch, least):
    module = attention(heads=2, width=8)
    frames = torch.randn(batch, time, 8, dtype=torch.float64)
    positions = relative_positions(time, 8, frames.device).double()
    valid = torch.arange(time) < torch.randint(0, time + 1, (batch, 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.encoders.attention._SCORES_PER_BLOCK", 0)
        patch.setattr("models.encoders.attention._LEAST_BLOCK", least)
        blocks = module(frames, positions, valid)
        patch.setattr("models.encoders.attention._LEAST_BLOCK", time)
        whole = module(frames, positions, valid)

    torch.testing.assert_close(blocks, whole)
