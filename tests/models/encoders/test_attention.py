"""Relative self-attention against its definition."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import AttentionContext
from models.encoders.attention import RelativeAttention, frames_within_reach, relative_positions
from models.encoders.padding import Padding
from tests.models.small import SMALL

SIDES = st.none() | st.integers(0, 6)
CHUNKS = st.builds(
    lambda chunks, right: (None if chunks is None else chunks * (right + 1), right), SIDES, st.integers(0, 4)
)
CONTEXTS = (
    st.none()
    | st.builds(AttentionContext, SIDES, SIDES)
    | CHUNKS.map(lambda sides: AttentionContext(*sides, in_chunks=True))
)


def is_near(context, i, j):
    if context is None:
        return True
    if context.in_chunks:
        size = context.right + 1
        first = 0 if context.left is None else i // size * size - context.left
        return first <= j < (i // size + 1) * size
    return (context.left is None or j >= i - context.left) and (context.right is None or j <= i + context.right)


def attention(heads, width, *, bias=True, context=None):
    torch.manual_seed(0)
    module = RelativeAttention(replace(SMALL, width=width, heads=heads, bias=bias, attention_context=context)).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def positions(module, time, width):
    """The distances that a module asks for."""
    reach = frames_within_reach(time, module.context)
    return relative_positions(reach, width, torch.device("cpu")).double()


def pair_by_pair(module, frames, length):
    """Attention of one row, score by score; frames [time, width]."""
    width = frames.size(1)
    share = width // module.heads
    heads = []
    for head in range(module.heads):
        part = slice(head * share, (head + 1) * share)
        query, key, value = (layer(frames)[:, part] for layer in (module.query, module.key, module.value))
        scores = torch.empty(len(frames), length, dtype=frames.dtype)
        for i in range(len(frames)):
            for j in range(length):
                sinusoid = [
                    f((i - j) * 10_000 ** (-m / width)) for m in range(0, width, 2) for f in (math.sin, math.cos)
                ]
                position = module.position(torch.tensor(sinusoid, dtype=frames.dtype))[part]
                content = (query[i] + module.content_bias[head]) @ key[j]
                distance = (query[i] + module.position_bias[head]) @ position
                near = is_near(module.context, i, j)
                scores[i, j] = (content + distance) / math.sqrt(share) if near else -math.inf
        heads.append(scores.softmax(-1) @ value[:length])
    return module.output(torch.cat(heads, dim=-1))


@given(
    time=st.integers(1, 6),
    spare=st.integers(0, 3),
    heads=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    context=CONTEXTS,
    block=st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
@torch.no_grad()
def test_it_equals_its_definition_pair_by_pair(time, spare, heads, bias, context, block):
    module = attention(heads, 8, bias=bias, context=context)
    frames = torch.randn(1, time + spare, 8, dtype=torch.float64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.encoders.attention._LEAST_BLOCK", block)
        patch.setattr("models.encoders.attention._SCORES_PER_BLOCK", 0)
        attended = module(frames, positions(module, time + spare, 8), Padding(torch.tensor([time]), time + spare))

    # The sinusoids are computed in float32, as NeMo's are.
    torch.testing.assert_close(attended[0, :time], pair_by_pair(module, frames[0], time)[:time], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_row_without_a_valid_frame_gives_numbers():
    module = attention(2, 8)

    frames = torch.randn(1, 3, 8, dtype=torch.float64)
    attended = module(frames, positions(module, 3, 8), Padding(torch.zeros(1, dtype=torch.int64), 3))

    assert attended.isfinite().all()


@torch.no_grad()
def test_what_a_band_computes_grows_with_a_clip_and_not_with_its_square():
    module = attention(2, 8, context=AttentionContext(20, 20))
    scores = []

    def note(queries, keys, values, bias):
        scores.append(queries.size(-2) * keys.size(-2))
        return values[..., :1, :].expand(queries.shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.encoders.attention._attended_in_products", note)
        computed = []
        for time in (1000, 2000):
            frames = torch.randn(1, time, 8, dtype=torch.float64)
            module(frames, positions(module, time, 8), Padding(torch.tensor([time]), time))
            computed.append(sum(scores))
            scores.clear()

    assert computed[1] < 2.1 * computed[0]
    assert positions(module, 10**6, 8).size(0) < 150


@pytest.mark.parametrize("context", [None, AttentionContext(20, 20), AttentionContext(8, 3, in_chunks=True)])
@pytest.mark.parametrize("heads", [1, 2])
def test_what_learns_attends_as_what_does_not(heads, context):
    module = attention(heads, 8, context=context)
    frames, padding = torch.randn(2, 45, 8, dtype=torch.float64), Padding(torch.tensor([45, 13]), 45)
    valid = padding.valid

    learning = module(frames, positions(module, 45, 8), padding)
    with torch.no_grad():
        found = module(frames, positions(module, 45, 8), padding)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        near = module.float()(frames.float(), positions(module, 45, 8).float(), padding)

    assert learning.requires_grad
    torch.testing.assert_close(found[valid], learning.detach()[valid])
    assert (near - found)[valid].norm() < 0.02 * found[valid].norm()


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_gives_what_three_give(bias):
    module = attention(2, 8, bias=bias)
    frames, padding = torch.randn(2, 9, 8, dtype=torch.float64), Padding(torch.tensor([9, 9]), 9)
    with torch.no_grad():
        wanted = module(frames, positions(module, 9, 8), padding)
        module.fold()
        found = module(frames, positions(module, 9, 8), padding)

    assert not [name for name, _ in module.named_parameters() if name.startswith(("query", "key", "value"))]
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize("context", [None, AttentionContext(3, 3), AttentionContext(6, 2, in_chunks=True)])
@pytest.mark.parametrize("time", [1, 7, 8, 9, 20])
@torch.no_grad()
def test_distances_projected_once_give_what_those_of_a_batch_give(time, context, monkeypatch):
    monkeypatch.setattr("models.encoders.attention._FRAMES_IN_TABLE", 8)
    monkeypatch.setattr("models.encoders.attention._LEAST_BLOCK", 4)
    module = attention(2, 8, context=context)
    frames = torch.randn(3, time, 8, dtype=torch.float64)
    padding = Padding(torch.tensor([time, time // 2, 0]), time)
    wanted = module(frames, positions(module, time, 8), padding)

    module.fold()

    assert module.table.shape == (2, 15, 4)
    torch.testing.assert_close(module(frames, positions(module, time, 8), padding), wanted)
    if positions(module, time, 8).size(0) <= 15:  # longer clips have distances that are not in the table
        module.position = None
        module(frames, positions(module, time, 8), padding)
