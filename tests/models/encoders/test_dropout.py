"""Training drops the output of every module of a layer, and inference none."""

import pytest
import torch

from models.config import ConformerConfig
from models.encoders.attention import relative_positions
from models.encoders.conformer import ConformerLayer
from models.encoders.padding import Padding

CONFIG = ConformerConfig(
    mels=8,
    layers=1,
    width=8,
    heads=2,
    feed_forward_width=16,
    kernel_size=3,
    subsampling="dw_striding",
    subsampling_factor=4,
    subsampling_channels=2,
    bias=True,
    scale_input=False,
)


@pytest.mark.parametrize("training", [True, False])
def test_with_everything_dropped_only_the_norm_is_left(training):
    layer = ConformerLayer(CONFIG, dropout=1.0).train(training)
    frames = torch.randn(2, 5, CONFIG.width)
    positions = relative_positions(5, CONFIG.width, frames.device)

    out = layer(frames, positions, Padding(torch.tensor([5, 5]), 5))

    assert torch.equal(out, layer.norm(frames)) == training
