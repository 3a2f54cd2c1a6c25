"""The convolutional encoders on their own: shapes of every kind, lengths, and that padding never matters."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models.config import BlockConfig, JasperConfig
from models.encoders.jasper import JasperEncoder, SqueezeExcitation
from tests.models.encoders.batches import BATCHES, randomized, same_alone_and_in_a_batch


def block(**changed):
    plain = {"filters": 8, "repeat": 1, "kernel_size": 3, "stride": 1, "dilation": 1}
    plain |= {"separable": False, "residual": False, "dense": False, "squeeze_width": None}
    return BlockConfig(**(plain | changed))


FIRST = st.builds(block, kernel_size=st.sampled_from([1, 5, 11]), stride=st.integers(1, 3), separable=st.booleans())
DENSE = st.builds(
    block,
    filters=st.sampled_from([4, 6]),
    repeat=st.integers(1, 3),
    kernel_size=st.sampled_from([1, 3, 9]),
    dilation=st.integers(1, 2),
    separable=st.booleans(),
    residual=st.just(True),
    dense=st.just(True),
    squeeze_width=st.sampled_from([None, 2]),
)
OTHER = st.builds(
    block,
    filters=st.sampled_from([4, 6]),
    repeat=st.integers(1, 3),
    kernel_size=st.sampled_from([1, 3, 21]),
    stride=st.integers(1, 2),
    separable=st.booleans(),
    residual=st.booleans(),
    squeeze_width=st.sampled_from([None, 2]),
)
CONFIGS = st.builds(
    lambda first, dense, others, activation: JasperConfig(5, (first, *dense, block(), *others), activation),
    FIRST,
    st.lists(DENSE, max_size=3),
    st.lists(OTHER, max_size=3),
    st.sampled_from(["relu", "swish"]),
)


@given(config=CONFIGS, batch=BATCHES)
@settings(max_examples=25, deadline=None)
def test_a_clip_gives_the_same_alone_and_in_any_padding(config, batch):
    columns, counts = same_alone_and_in_a_batch(randomized(JasperEncoder(config)), batch)

    assert counts == [-(-length // config.subsampling_factor) for length in batch.lengths]
    assert columns == -(-batch.columns // config.subsampling_factor)


@torch.no_grad()
def test_squeeze_and_excitation_weighs_by_the_mean_of_the_clip():
    module = SqueezeExcitation(block(filters=4, squeeze_width=2), torch.relu).double()
    frames = torch.randn(1, 4, 7, dtype=torch.float64)

    weighed = module(frames, torch.arange(7)[None] < 5)

    mean = frames[0, :, :5].mean(dim=1)
    weights = (module.expand.weight @ (module.contract.weight @ mean).relu()).sigmoid()
    torch.testing.assert_close(weighed[0], frames[0] * weights[:, None])


def test_a_network_can_be_trained_and_padding_does_not_change_what_it_learns():
    config = JasperConfig(5, (block(), block(residual=True, repeat=2), block(squeeze_width=2)), "relu")
    gradients = []
    for padding in (0, 9):
        module = randomized(JasperEncoder(config)).train()
        features = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        encoded, _ = module(nn.functional.pad(features, (0, padding), value=3.0), torch.tensor([12, 12]))
        encoded.square().sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in module.parameters()]))

    # Statistics of a batch are float32.
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)
