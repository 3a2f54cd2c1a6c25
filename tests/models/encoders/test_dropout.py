"""Training drops the output of every module of a layer, and inference none."""

import pytest
import torch

from models.encoders.attention import relative_positions
from models.encoders.conformer import ConformerLayer
from models.encoders.padding import Padding
from tests.models.small import SMALL


@pytest.mark.parametrize("training", [True, False])
def test_with_everything_dropped_only_the_norm_is_left(training):
    layer = ConformerLayer(SMALL, dropout=1.0).train(training)
    frames = torch.randn(2, 5, SMALL.width)
    positions = relative_positions(5, SMALL.width, frames.device)

    out = layer(frames, positions, Padding(torch.tensor([5, 5]), 5))

    assert torch.equal(out, layer.norm(frames)) == training
