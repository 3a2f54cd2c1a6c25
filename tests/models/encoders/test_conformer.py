"""The encoder on its own: shapes of every kind, lengths, and that padding never matters."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import AttentionContext, ConformerConfig
from models.encoders.conformer import ConformerEncoder
from tests.models.encoders.batches import BATCHES, randomized, same_alone_and_in_a_batch
from tests.models.small import SMALL

CONFIGS = st.builds(
    ConformerConfig,
    mels=st.sampled_from([5, 16, 17]),
    layers=st.just(2),
    width=st.sampled_from([8, 12]),
    heads=st.sampled_from([1, 2, 4]),
    feed_forward_width=st.just(16),
    kernel_size=st.sampled_from([1, 3, 9, 31]),
    subsampling=st.sampled_from(["striding", "dw_striding"]),
    subsampling_factor=st.sampled_from([2, 4, 8]),
    subsampling_channels=st.sampled_from([1, 6]),
    bias=st.booleans(),
    scale_input=st.booleans(),
    attention_context=st.sampled_from(
        [None, AttentionContext(3, 3), AttentionContext(4, 0), AttentionContext(6, 2, in_chunks=True)]
    ),
    causal_subsampling=st.booleans(),
    convolution_left=st.none() | st.integers(0, 2),
    convolution_norm=st.sampled_from(["batch_norm", "layer_norm"]),
)


def frames_of(config: ConformerConfig, features: int) -> int:
    if not config.causal_subsampling:
        return -(-features // config.subsampling_factor)
    for _ in range(config.subsampling_factor.bit_length() - 1):
        features = features // 2 + 1 if features else 0
    return features


@pytest.mark.slow
@given(config=CONFIGS, batch=BATCHES)
@settings(max_examples=60, deadline=None)
def test_a_clip_gives_the_same_alone_and_in_any_padding(config, batch):
    columns, counts = same_alone_and_in_a_batch(randomized(ConformerEncoder(config)), batch)

    assert counts == [frames_of(config, length) for length in batch.lengths]
    assert columns == frames_of(config, batch.columns)


@pytest.mark.parametrize("context", [None, AttentionContext(2, 2)], ids=["full", "local"])
@pytest.mark.parametrize("training", [False, True])
def test_no_clip_gives_no_frames(training, context):
    config = replace(SMALL, attention_context=context)

    with torch.set_grad_enabled(training):
        encoded, lengths = ConformerEncoder(config).eval()(torch.empty(0, 8, 50), torch.empty(0, dtype=torch.int64))

    assert encoded.shape == (0, 13, 12)
    assert lengths.shape == (0,)
