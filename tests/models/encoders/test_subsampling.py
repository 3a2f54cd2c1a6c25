"""Subsampling: against plain convolutions of a clip alone, and in pieces of time."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import relu

from models.encoders.subsampling import SeparableStage, Subsampling
from tests.models.small import SMALL


def subsampling(kind, factor, mels=5):
    torch.manual_seed(0)
    shape = {"subsampling": kind, "subsampling_factor": factor, "subsampling_channels": 6}
    return Subsampling(replace(SMALL, mels=mels, width=8, **shape)).double()


def by_definition(module, features):
    """Frames of one clip, features [mels, frames], with the convolutions that the stages stand for."""
    images = features.T[None, None]
    for stage in module.stages:
        if isinstance(stage, SeparableStage):
            images = relu(stage.pointwise(stage.depthwise(images)))
        else:
            images = relu(stage.convolution(images))
    return module.projection(images.transpose(1, 2).flatten(2))[0]


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["striding", "dw_striding"]),
    factor=st.sampled_from([2, 4, 8]),
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    extra=st.integers(0, 20),
    piece=st.sampled_from([8, 16, 24, 1024]),
)
@torch.no_grad()
def test_every_row_of_a_batch_is_the_clip_alone_in_one_piece(kind, factor, lengths, extra, piece):
    module = subsampling(kind, factor)
    clips = [torch.randn(5, length, dtype=torch.float64) for length in lengths]
    batch = torch.full((len(clips), 5, max(1, max(lengths) + extra)), torch.nan, dtype=torch.float64)
    for row, clip in zip(batch, clips, strict=True):
        row[:, : clip.size(1)] = clip

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.encoders.subsampling._PIECE", piece)
        frames, found = module(batch, torch.tensor(lengths))

    assert frames.shape == (len(clips), -(-batch.size(2) // factor), 8)
    assert found.tolist() == [-(-length // factor) for length in lengths]
    for row, clip, length in zip(frames, clips, found.tolist(), strict=True):
        if length:
            torch.testing.assert_close(row[:length], by_definition(module, clip))


@pytest.mark.parametrize("kind", ["striding", "dw_striding"])
@given(lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3), mels=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
@torch.no_grad()
def test_prepared_for_inference_it_gives_the_same(kind, lengths, mels):
    module = subsampling(kind, 8, mels).float()
    batch, lengths = torch.randn(len(lengths), mels, 70), torch.tensor(lengths)
    wanted, _ = module(batch, lengths)

    module.fold()
    torch.testing.assert_close(module(batch, lengths)[0], wanted, rtol=1e-4, atol=1e-5)
    module.pack()
    torch.testing.assert_close(module(batch, lengths)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prepared", [False, True])
@torch.no_grad()
def test_no_clip_gives_no_frames(prepared):
    module = subsampling("dw_striding", 8).float()
    if prepared:
        module.fold()
        module.pack()

    frames, lengths = module(torch.empty(0, 5, 9), torch.empty(0).long())

    assert frames.shape == (0, 2, 8)
    assert lengths.shape == (0,)


@torch.no_grad()
def test_a_gpus_way_with_padding_gives_a_cpus_without():
    module = subsampling("dw_striding", 8)
    batch, lengths = torch.randn(3, 5, 41, dtype=torch.float64), torch.tensor([41, 17, 0])

    wanted, found = module(batch, lengths)
    masked = module.projection(module._stacked(batch, lengths))

    for row, other, frames in zip(masked, wanted, found.tolist(), strict=True):
        torch.testing.assert_close(row[:frames], other[:frames])


def test_training_goes_through_pieces(monkeypatch):
    monkeypatch.setattr("models.encoders.subsampling._PIECE", 8)
    module = subsampling("dw_striding", 8)
    features = torch.randn(2, 5, 30, dtype=torch.float64, requires_grad=True)

    module(features, torch.tensor([30, 11]))[0].square().sum().backward()

    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())
    assert features.grad[0].abs().sum(0).all()
    assert not features.grad[1, :, 11:].any()
