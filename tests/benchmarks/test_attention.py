"""The attention that is measured: each form computes the same."""

import os
from dataclasses import replace

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.random_model import ENCODERS
from models.encoders.attention import RelativeAttention, frames_within_reach, relative_positions
from models.encoders.padding import Padding
from tests.triton_interpreter import mend


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without", "ignore:.*torch.jit:DeprecationWarning")
@torch.no_grad()
def test_flex_attention_gives_what_plain_operations_give(monkeypatch):
    from benchmarks import attention  # imports torch's compiler

    monkeypatch.setattr(attention, "_compiled_flex", flex_attention)
    torch.manual_seed(0)
    config = replace(ENCODERS["0.6b"], width=64, heads=4)
    module = RelativeAttention(config).eval()
    torch.nn.init.normal_(module.content_bias)
    torch.nn.init.normal_(module.position_bias)
    module.fold()
    frames, padding = torch.randn(2, 20, 64), Padding(torch.tensor([20, 12]), 20)
    positions = relative_positions(frames_within_reach(20, None), 64, frames.device)

    wanted = module.attended(frames, positions, padding)
    found = attention._flex(module, frames, positions, padding)

    torch.testing.assert_close(found[padding.valid], wanted[padding.valid])


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="a CPU runs kernels in the interpreter only")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.compile:DeprecationWarning")
@torch.no_grad()
def test_launches_attend_beyond_the_folded_distances(monkeypatch):
    from benchmarks import attention  # imports torch's compiler

    mend()
    monkeypatch.setattr("models.encoders.attention._FRAMES_IN_TABLE", 8)
    torch.manual_seed(0)
    module = RelativeAttention(ENCODERS["toy"]).eval()
    module.fold()
    frames, padding = torch.randn(1, 20, 64), Padding(torch.tensor([20]), 20)
    positions = relative_positions(frames_within_reach(20, None), 64, frames.device)

    wanted = module.attended(frames, positions, padding)

    for _, attend in attention._launches(module, frames, positions, padding):
        torch.testing.assert_close(attend(), wanted)
