"""The kernel of sums and norms gives what the two operations give."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

from models.encoders.conformer import ConformerLayer
from models.encoders.padding import Padding
from models.kernels.residual_norm import residual_norm
from tests.models.kernels.test_convolution import DEVICES, TOLERANCE
from tests.models.small import SMALL


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=20, phases=(Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(sorted(TOLERANCE, key=str)),
    shape=st.tuples(st.integers(0, 3), st.integers(0, 9)),
    width=st.integers(1, 150),
    share=st.sampled_from([0.5, 1.0]),
)
def test_it_gives_what_the_operations_give(device, seed, dtype, shape, width, share):
    torch.manual_seed(seed)
    frames, change = (torch.randn(*shape, width).to(device, dtype) for _ in range(2))
    weight, bias = (torch.randn(width).to(device, dtype) for _ in range(2))

    total, normed = residual_norm(frames, change, share, weight, bias, 1e-5)

    wanted = torch.add(frames, change, alpha=share)
    tolerance = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    assert total.dtype == normed.dtype == dtype
    assert torch.allclose(total.float(), wanted.float(), **tolerance)
    wanted = layer_norm(total.float(), (width,), weight.float(), bias.float(), 1e-5)
    assert torch.allclose(normed.float(), wanted, **tolerance)


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_uses_it_in_inference(device, monkeypatch):
    torch.manual_seed(1)
    layer = ConformerLayer(SMALL, 0.0).eval().to(device)
    frames, padding = torch.randn(2, 20, SMALL.width).to(device), Padding(torch.tensor([20, 20], device=device), 20)
    positions = torch.randn(39, SMALL.width).to(device)
    shares = []

    def counted(frames, change, share, *norm):
        shares.append(share)
        return residual_norm(frames, change, share, *norm)

    monkeypatch.setattr("models.encoders.conformer.gated_convolution_on", lambda *_: None)
    monkeypatch.setattr("models.encoders.conformer.residual_norm_on", lambda *_: None)
    with torch.no_grad():
        wanted = layer(frames, positions, padding)
    monkeypatch.setattr("models.encoders.conformer.residual_norm_on", lambda *_: counted)
    layer(frames, positions, padding)  # with gradients
    assert not shares
    with torch.no_grad():
        found = layer(frames, positions, padding)

    assert shares == [0.5, 1.0, 1.0, 0.5]
    assert torch.allclose(found, wanted, atol=1e-5)
