"""The kernel of attention by content and distance gives what the operations give."""

from dataclasses import replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from models.config import AttentionContext
from models.encoders.attention import RelativeAttention, frames_within_reach, relative_positions
from models.encoders.padding import Padding
from models.kernels.attention import LAUNCH, LAUNCH_FROM_REGISTERS, Launch, relative_attention
from tests.models.small import SMALL

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3}


SIDES = st.none() | st.integers(0, 100)
CHUNKS = st.builds(
    lambda chunks, right: (None if chunks is None else chunks * (right + 1), right), SIDES, st.integers(0, 40)
)
CONTEXTS = (
    st.none()
    | st.builds(AttentionContext, SIDES, SIDES)
    | CHUNKS.map(lambda sides: AttentionContext(*sides, in_chunks=True))
)


def attention(heads, share, context=None):
    module = RelativeAttention(replace(SMALL, width=heads * share, heads=heads, attention_context=context)).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=share**-0.5 / 2)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=15, phases=(Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(sorted([*TOLERANCE, torch.bfloat16], key=str)),
    batch=st.integers(1, 2),
    frames=st.integers(1, 9) | st.integers(60, 140),
    heads=st.integers(1, 2),
    share=st.sampled_from([2, 16, 22, 64]),
    context=CONTEXTS,
    in_table=st.booleans(),
    packed=st.booleans(),
)
def test_it_gives_what_the_operations_give(device, seed, dtype, batch, frames, heads, share, context, in_table, packed):
    assert_same(device, seed, dtype, batch, frames, heads, share, context, in_table, packed)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("frames", "context"),
    [(3, None), (125, None), (300, AttentionContext(40, 40)), (200, AttentionContext(70, 13, in_chunks=True))],
)
def test_in_bfloat16_too(device, frames, context):
    assert_same(device, 0, torch.bfloat16, 3, frames, 8, 128, context, in_table=True, packed=True)


@torch.no_grad()
def assert_same(device, seed, dtype, batch, frames, heads, share, context, in_table, packed):
    torch.manual_seed(seed)
    module = attention(heads, share, context)
    positions = relative_positions(frames_within_reach(frames, context), heads * share, torch.device("cpu"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.encoders.attention._FRAMES_IN_TABLE", 150 if in_table else 1)
        module.fold()
    module = module.to(device, dtype)
    positions, inputs = positions.to(device, dtype), torch.randn(batch, frames, heads * share).to(device, dtype)
    lengths = torch.randint(0, frames + 1, (batch,)).to(device)
    rows = Padding(lengths, frames)
    padding = Padding(lengths, frames, int(lengths.sum())) if packed else rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.encoders.attention.relative_attention_on", lambda *_: relative_attention)
        found = padding.with_it(module(padding.without(inputs), positions, padding))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.encoders.attention.relative_attention_on", lambda *_: None)
        plain = module(inputs, positions, rows) if dtype == torch.bfloat16 else None
        wanted = module.float()(inputs.float(), positions.float(), rows)

    assert found.dtype == dtype
    assert found.isfinite().all()
    real = rows.valid[:, :, None]
    if plain is None:
        assert torch.allclose(found.float() * real, wanted * real, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    else:  # as models/comparison.py has it: plain operations are not within 1e-2 of float32 either
        error, own = (float((values.float() * real - wanted * real).abs().max()) for values in (found, plain))
        assert error <= max(2.0**-6 * float((wanted * real).abs().max()), 1.5 * own)


@pytest.mark.parametrize("device", DEVICES)
def test_however_it_is_launched_it_gives_the_same(device):
    torch.manual_seed(2)
    merged, table, biases = torch.randn(1, 90, 48), torch.randn(1, 99, 16), torch.randn(2, 1, 16)
    starts, lengths = torch.tensor([0, 50, 90]), torch.tensor([50, 40])
    inputs = [tensor.to(device) for tensor in (merged, table, *biases, starts, lengths)]

    launches = [Launch(16, 16), LAUNCH_FROM_REGISTERS, LAUNCH]
    found = [relative_attention(*inputs, 50, None, launch) for launch in launches]

    for other in found[1:]:
        torch.testing.assert_close(found[0], other)


def test_no_utterance_attends_to_nothing():
    nothing, bias, start = torch.zeros(0, 5, 48), torch.zeros(2, 8), torch.tensor([0])

    attended = relative_attention(nothing, torch.zeros(2, 9, 8), bias, bias, start, start[1:], 5, None)

    assert attended.shape == (0, 5, 16)
