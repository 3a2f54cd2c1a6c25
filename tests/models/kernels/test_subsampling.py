"""The kernels of the subsampling give what its operations give."""

from dataclasses import replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from models.encoders.subsampling import Subsampling
from models.kernels.subsampling import halved_features, halved_images
from tests.models.kernels.test_convolution import DEVICES, TOLERANCE
from tests.models.small import SMALL


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=8, phases=(Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(sorted(TOLERANCE, key=str)),
    batch=st.integers(0, 2),
    time=st.integers(1, 140),
    mels=st.integers(8, 40),
    channels=st.sampled_from([1, 5, 64, 300]),
    factor=st.sampled_from([4, 8]),
)
def test_they_give_what_the_operations_give(device, seed, dtype, batch, time, mels, channels, factor):
    torch.manual_seed(seed)
    config = replace(SMALL, mels=mels, subsampling_factor=factor, subsampling_channels=channels)
    subsampling = Subsampling(config).eval().to(device)
    subsampling.fold()
    features = torch.randn(batch, mels, time).to(device, dtype)
    lengths = torch.randint(0, time + 1, (batch,)).to(device)
    silenced = features.masked_fill(torch.arange(time, device=device) >= lengths[:, None, None], 0.0)

    with torch.no_grad():
        wanted = subsampling._stacked(features.float(), lengths)
        found = subsampling.to(dtype)._stacked_by((halved_features, halved_images), silenced, lengths)

    assert found.dtype == dtype
    assert found.shape == wanted.shape
    assert found.isfinite().all()
    valid = torch.arange(found.size(1), device=device) < subsampling.shortened(lengths)[:, None]
    # Relative to the largest value: a sum whose terms cancel has the error of its terms.
    room = TOLERANCE[dtype] * (1 + wanted[valid].abs().max()) if valid.any() else 0.0
    assert ((found.float() - wanted)[valid].abs() <= room).all()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_folded_subsampling_uses_them_in_inference(device, monkeypatch):
    torch.manual_seed(1)
    subsampling = Subsampling(replace(SMALL, subsampling_factor=8)).eval().to(device)
    features, lengths = torch.randn(2, SMALL.mels, 40).to(device), torch.tensor([40, 17], device=device)
    calls = []

    def counted(kernel):
        return lambda *arguments: calls.append(kernel.__name__) or kernel(*arguments)

    kernels = counted(halved_features), counted(halved_images)
    monkeypatch.setattr("models.encoders.subsampling.depthwise_halves_on", lambda *_: kernels)
    with torch.no_grad():
        wanted = subsampling.projection(subsampling._stacked(features, lengths))
    subsampling.fold()
    subsampling._stacked(features, lengths)  # with gradients
    assert not calls
    with torch.no_grad():
        found = subsampling.projection(subsampling._stacked(features, lengths))

    assert calls == ["halved_features", "halved_images"]
    for row, count in enumerate(subsampling.shortened(lengths)):
        assert torch.allclose(found[row, :count], wanted[row, :count], atol=1e-5)
