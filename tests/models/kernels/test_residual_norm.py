"""The kernel of sums and norms gives what the two operations give."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

from models.kernels.residual_norm import residual_norm
from tests.models.kernels.test_convolution import DEVICES, TOLERANCE


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
