"""The kernel of the convolution module gives what the module's operations give."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn.functional import conv1d, glu, pad, silu

from models.encoders.padding import Padding
from models.kernels import convolution
from models.kernels.convolution import gated_convolution

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 1e-2}


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=15, phases=(Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(sorted(TOLERANCE, key=str)),
    batch=st.integers(1, 3),
    time=st.integers(1, 70),
    width=st.integers(1, 80),
    kernel=st.sampled_from([1, 3, 9, 31]),
    side=st.sampled_from([None, 0.0, 0.7, 1.0]),
    biased=st.booleans(),
    swish=st.booleans(),
    packed=st.booleans(),
    large=st.booleans(),
)
def test_it_gives_what_the_operations_give(
    device, seed, dtype, batch, time, width, kernel, side, biased, swish, packed, large
):
    torch.manual_seed(seed)
    halves = torch.randn(batch, time, 2 * width).to(device, dtype)
    lengths = torch.randint(0, time + 1, (batch,)).to(device)
    padding = Padding(lengths, time, int(lengths.sum()) if packed else None)
    valid = padding.valid
    weight = (torch.randn(width, 1, kernel) / kernel).to(device, dtype)
    bias = torch.randn(width).to(device, dtype) if biased else None
    halves[~valid] = float("nan")

    rows = padding.starts, padding.lengths, padding.time
    with patch.object(convolution, "_LARGE_BATCH", 0 if large else 8192):
        options = {"swish": swish, "left": None if side is None else round(side * (kernel - 1))}
        convolved = padding.with_it(gated_convolution(padding.without(halves), *rows, weight, bias, **options))

    gated = glu(halves.float(), dim=2).masked_fill(~valid[:, :, None], 0.0)
    left = kernel // 2 if side is None else options["left"]
    around = pad(gated.transpose(1, 2), (left, kernel - 1 - left))
    wanted = conv1d(around, weight.float(), None if bias is None else bias.float(), groups=width).transpose(1, 2)
    wanted = silu(wanted) if swish else wanted
    assert convolved.dtype == dtype
    assert convolved.isfinite().all()
    wanted, convolved = wanted[valid], convolved[valid]
    assert torch.allclose(convolved.float(), wanted, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
