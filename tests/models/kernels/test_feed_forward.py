"""The kernel of a feed-forward module's expansion gives what the two operations give."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn.functional import linear, silu

from models.device.fast_paths import FAST_PATHS, FastPath
from models.encoders.conformer import FeedForward
from models.kernels import swish_expansion_on
from models.kernels.feed_forward import TILES, swish_expansion
from tests.models.kernels.test_convolution import DEVICES, TOLERANCE
from tests.models.small import SMALL


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=20, phases=(Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(sorted(TOLERANCE, key=str)),
    shape=st.tuples(st.integers(0, 3), st.integers(1, 150)),
    channels=st.integers(1, 20).map(lambda eights: 8 * eights),
    columns=st.integers(1, 40).map(lambda eights: 8 * eights),
    biased=st.booleans(),
    tile=st.sampled_from(TILES),
)
def test_it_gives_what_the_operations_give(device, seed, dtype, shape, channels, columns, biased, tile):
    if device == "cuda" and dtype == torch.float32:
        return  # its tiles are too large for a GPU, which never takes it in float32
    torch.manual_seed(seed)
    frames = torch.randn(*shape, channels).to(device, dtype)
    weight = (torch.randn(columns, channels) / channels**0.5).to(device, dtype)
    bias = torch.randn(columns).to(device, dtype) if biased else None

    expanded = swish_expansion(frames, weight, bias, tile)

    wanted = silu(linear(frames.float(), weight.float(), None if bias is None else bias.float()))
    assert expanded.dtype == dtype
    assert expanded.shape == wanted.shape
    assert torch.allclose(expanded.float(), wanted, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_a_module_uses_it_for_many_frames_in_inference():
    torch.manual_seed(1)
    module = FeedForward(SMALL).eval()
    few, many = torch.randn(2, 10, SMALL.width), torch.randn(2, 50, SMALL.width)
    wanted = module(many).detach()
    asked = []

    def told(device, dtype, shape):
        asked.append(shape)
        return lambda frames, weight, bias: silu(linear(frames, weight, bias))

    with (
        patch("models.encoders.conformer.swish_expansion_on", told),
        patch("models.encoders.conformer.FRAMES_WORTH_A_KERNEL", 100),
    ):
        module(many)  # with gradients
        with torch.no_grad():
            module(few)
            assert not asked
            assert torch.equal(module(many), wanted)

    assert asked == [module.expand.weight.shape]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_gpu_tries_all_ways_and_takes_one_that_is_right(dtype):
    torch.manual_seed(1)
    frames = torch.randn(5000, 1024).to("cuda", dtype)
    weight, bias = (torch.randn(4096, 1024) / 32).to("cuda", dtype), torch.randn(4096).to("cuda", dtype)
    wanted = silu(linear(frames.float(), weight.float(), bias.float()))

    with FAST_PATHS.trying(FastPath.FEED_FORWARD):
        kernel = swish_expansion_on(frames.device, dtype, weight.shape)
    ways = [] if kernel is None else [kernel(frames, weight, bias)]
    for expanded in [*ways, *(swish_expansion(frames, weight, bias, tile) for tile in TILES)]:
        assert torch.allclose(expanded.float(), wanted, atol=1e-2, rtol=1e-2)
