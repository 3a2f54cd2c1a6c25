"""In training, batch norm sees real frames only; in inference it is torch's own."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models.encoders.batch_norm import FrameBatchNorm, fold
from models.encoders.masking import valid_positions

WIDTH = 3


def norms():
    """Ours and torch's, with the same weights."""
    torch.manual_seed(0)
    ours, plain = FrameBatchNorm(WIDTH).double(), nn.BatchNorm1d(WIDTH).double()
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    plain.load_state_dict(ours.state_dict())
    return ours, plain


def batch(lengths, extra, nonsense=1e6):
    """Frames [batch, width, time] with nonsense in the padding, and which of them are real."""
    time = max(lengths) + extra
    valid = valid_positions(torch.tensor(lengths), time)
    generator = torch.Generator().manual_seed(len(lengths) + time)
    frames = 3 + 2 * torch.randn(len(lengths), WIDTH, time, generator=generator, dtype=torch.float64)
    return frames.masked_fill(~valid[:, None], nonsense), valid


@given(
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=5),
    extra=st.integers(0, 6),
    nonsense=st.sampled_from([1e6, math.inf, math.nan]),
)
@settings(max_examples=40, deadline=None)
def test_training_equals_torchs_batch_norm_over_the_real_frames_alone(lengths, extra, nonsense):
    ours, plain = norms()
    frames, valid = batch(lengths, extra, nonsense)

    out = ours(frames, valid).transpose(1, 2)[valid]
    expected = plain(frames.transpose(1, 2)[valid])

    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_silence", [True, False])
def test_a_batch_without_frames_that_count_has_the_running_statistics_and_does_not_move_them(is_silence):
    ours, plain = (norm.float() for norm in norms())
    frames, valid = batch([4, 2], 1)
    ours(*batch([5, 3], 1))  # uneven statistics
    plain.load_state_dict(ours.state_dict())
    ours.is_silence = is_silence

    valid &= is_silence
    out = ours(frames, valid).transpose(1, 2)[valid]

    torch.testing.assert_close(out, plain.eval()(frames.float()).transpose(1, 2)[valid], rtol=1e-4, atol=1e-4)
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in plain.state_dict().items())


@pytest.mark.parametrize("nonsense", [1e6, math.nan])
def test_gradients_reach_the_frames_and_not_the_padding(nonsense):
    ours, _ = norms()
    frames, valid = batch([3, 1], 2, nonsense)
    frames.requires_grad_()

    ours(frames, valid).masked_fill(~valid[:, None], 0).square().sum().backward()

    assert (frames.grad.abs().sum(1) > 0).equal(valid)


@pytest.mark.parametrize("bias", [True, False])
def test_a_folded_convolution_gives_what_batch_norm_made_of_it(bias):
    ours, _ = norms()
    convolution = nn.Conv1d(2, WIDTH, kernel_size=3, padding=1, bias=bias)
    frames = torch.randn(2, 2, 7)
    ours(torch.randn(4, WIDTH, 9).double(), torch.ones(4, 9, dtype=torch.bool))  # uneven statistics
    expected = ours.eval()(convolution(frames).double(), torch.ones(2, 7, dtype=torch.bool))

    fold(convolution, ours)

    torch.testing.assert_close(convolution(frames), expected.float(), rtol=1e-5, atol=1e-5)
