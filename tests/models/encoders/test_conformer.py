"""The encoder on its own: shapes of every kind, lengths, and that padding never matters."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models.config import AttentionContext, ConformerConfig
from models.encoders.conformer import ConformerEncoder

CONFIGS = st.builds(
    ConformerConfig,
    mels=st.sampled_from([5, 16, 17]),
    layers=st.just(2),
    width=st.sampled_from([8, 12]),
    heads=st.sampled_from([1, 2, 4]),
    feed_forward_width=st.just(16),
    kernel_size=st.sampled_from([1, 3, 9, 31]),
    subsampling=st.sampled_from(["striding", "dw_striding", "stacking"]),
    subsampling_factor=st.sampled_from([2, 4, 8]),
    subsampling_channels=st.sampled_from([1, 6]),
    bias=st.booleans(),
    scale_input=st.booleans(),
    positions=st.sampled_from(["relative", "absolute"]),
    attention_context=st.sampled_from(
        [None, AttentionContext(3, 3), AttentionContext(4, 0), AttentionContext(6, 2, in_chunks=True)]
    ),
    causal_subsampling=st.booleans(),
    convolution_left=st.none() | st.integers(0, 2),
    convolution_norm=st.sampled_from(["batch_norm", "layer_norm"]),
)


def encoder(config):
    """An encoder in float64, so that only a mistake can make two results differ, with every tensor random."""
    torch.manual_seed(0)
    module = ConformerEncoder(config).double().eval()
    for name, tensor in module.named_buffers():
        if name.endswith("running_var"):
            nn.init.uniform_(tensor, 0.5, 1.5)
        elif name.endswith("running_mean"):
            nn.init.normal_(tensor)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def frames_of(config: ConformerConfig, features: int) -> int:
    if config.subsampling == "stacking":
        return features // config.subsampling_factor
    if not config.causal_subsampling:
        return -(-features // config.subsampling_factor)
    for _ in range(config.subsampling_factor.bit_length() - 1):
        features = features // 2 + 1 if features else 0
    return features


@pytest.mark.slow
@given(
    config=CONFIGS,
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    extra=st.integers(0, 10),
    garbage=st.sampled_from([0.0, 3.0, 1e30, float("inf"), float("nan")]),
)
@settings(max_examples=60, deadline=None)
@torch.no_grad()
def test_a_clip_gives_the_same_alone_and_in_any_padding(config, lengths, extra, garbage):
    module = encoder(config)
    columns = max(1, max(lengths) + extra)
    batch = torch.full((len(lengths), config.mels, columns), garbage, dtype=torch.float64)
    clips = [torch.randn(config.mels, length, dtype=torch.float64) for length in lengths]
    for row, features in zip(batch, clips, strict=True):
        row[:, : features.size(1)] = features

    encoded, counts = module(batch, torch.tensor(lengths))

    assert counts.tolist() == [frames_of(config, length) for length in lengths]
    longest = (
        frames_of(config, columns) if config.subsampling != "stacking" else -(-columns // config.subsampling_factor)
    )
    assert encoded.shape == (len(lengths), longest, config.width)
    for row, features, count in zip(encoded, clips, counts, strict=True):
        assert (row[count:] == 0).all()
        if features.size(1):
            alone, _ = module(features[None], torch.tensor([features.size(1)]))
            # The sinusoids of the positions are float32, and the same ones.
            torch.testing.assert_close(row[:count], alone[0, :count], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("context", [None, AttentionContext(2, 2)], ids=["full", "local"])
@pytest.mark.parametrize("training", [False, True])
def test_no_clip_gives_no_frames(training, context):
    config = ConformerConfig(
        16, 2, 8, 2, 16, 9, "striding", 4, 6, bias=True, scale_input=True, attention_context=context
    )

    with torch.set_grad_enabled(training):
        encoded, lengths = ConformerEncoder(config).eval()(torch.empty(0, 16, 50), torch.empty(0, dtype=torch.int64))

    assert encoded.shape == (0, 13, 8)
    assert lengths.shape == (0,)


@pytest.mark.parametrize("context", [None, AttentionContext(2, 2)], ids=["full", "local"])
@pytest.mark.parametrize("subsampling", ["striding", "dw_striding", "stacking"])
@torch.no_grad()
def test_no_value_of_the_input_decides_what_is_computed(subsampling, context):
    """A captured graph runs the same kernels for every input of a shape: a meta tensor has no values to ask for."""
    sizes = (16, 2, 8, 2, 16, 9, subsampling, 4, 6)
    config = ConformerConfig(*sizes, bias=True, scale_input=True, attention_context=context)
    with torch.device("meta"):
        module = ConformerEncoder(config).eval()
        encoded, lengths = module(torch.empty(3, 16, 50), torch.empty(3, dtype=torch.int64))

    assert encoded.shape == (3, 13, 8)
    assert lengths.shape == (3,)
