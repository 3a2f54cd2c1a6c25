"""In training, batch norm sees real frames only; in inference it is torch's own."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models.encoders.batch_norm import FrameBatchNorm
from models.masking import valid_positions

WIDTH = 3


def norms():
    """Ours and torch's, with the same weights."""
    torch.manual_seed(0)
    ours, plain = FrameBatchNorm(WIDTH).double(), nn.BatchNorm1d(WIDTH).double()
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    plain.load_state_dict(ours.state_dict())
    return ours, plain


def batch(lengths, extra):
    """Frames [batch, width, time] with nonsense in the padding, and which of them are real."""
    time = max(lengths) + extra
    valid = valid_positions(torch.tensor(lengths), time)
    generator = torch.Generator().manual_seed(len(lengths) + time)
    frames = 3 + 2 * torch.randn(len(lengths), WIDTH, time, generator=generator, dtype=torch.float64)
    return frames.masked_fill(~valid[:, None], 1e6), valid


@given(lengths=st.lists(st.integers(1, 12), min_size=2, max_size=5), extra=st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_training_equals_torchs_batch_norm_over_the_real_frames_alone(lengths, extra):
    ours, plain = norms()
    frames, valid = batch(lengths, extra)

    out = ours(frames, valid).transpose(1, 2)[valid]
    expected = plain(frames.transpose(1, 2)[valid])

    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-4, atol=1e-4)


def test_inference_is_torchs_batch_norm():
    ours, plain = norms()
    frames, valid = batch([4, 2], 1)

    out, expected = ours.eval()(frames, valid), plain.eval()(frames)

    assert torch.equal(out, expected)


def test_a_batch_without_frames_gives_finite_statistics():
    ours, _ = norms()

    ours(torch.ones(1, WIDTH, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.bool))

    assert all(value.isfinite().all() for value in ours.state_dict().values())


def test_gradients_reach_the_frames_and_not_the_padding():
    ours, _ = norms()
    frames, valid = batch([3, 1], 2)
    frames.requires_grad_()

    (ours(frames, valid) * valid[:, None]).square().sum().backward()

    assert (frames.grad.abs().sum(1) > 0).equal(valid)
