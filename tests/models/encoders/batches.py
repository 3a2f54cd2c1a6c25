"""Batches of clips with garbage in their padding, and that an encoder gives each clip what it gives it alone."""

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import nn


class Batch(NamedTuple):
    """Frames of each clip, frames of each row with its padding, and what is in the padding."""

    lengths: list[int]
    columns: int
    garbage: float


BATCHES = st.builds(
    lambda lengths, extra, garbage: Batch(lengths, max(1, max(lengths) + extra), garbage),
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
    st.integers(0, 10),
    st.sampled_from([0.0, 3.0, 1e30, float("inf"), float("nan")]),
)


def randomized(module):
    """The module in float64, so that only a mistake can make two results differ, with every tensor random."""
    torch.manual_seed(0)
    module = module.double().eval()
    for name, tensor in module.named_buffers():
        if name.endswith("running_var"):
            nn.init.uniform_(tensor, 0.5, 1.5)
        elif name.endswith("running_mean"):
            nn.init.normal_(tensor)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


@torch.no_grad()
def same_alone_and_in_a_batch(module, batch):
    """Check it, and return the columns that came out, and each clip's number of frames."""
    mels = module.config.mels
    clips = [torch.randn(mels, length, dtype=torch.float64) for length in batch.lengths]
    features = torch.full((len(clips), mels, batch.columns), batch.garbage, dtype=torch.float64)
    for row, clip in zip(features, clips, strict=True):
        row[:, : clip.size(1)] = clip

    encoded, counts = module(features, torch.tensor(batch.lengths))

    assert (len(encoded), encoded.size(2)) == (len(clips), module.config.width)
    for row, clip, count in zip(encoded, clips, counts, strict=True):
        assert (row[count:] == 0).all()
        if clip.size(1):
            alone, _ = module(clip[None], torch.tensor([clip.size(1)]))
            # A Conformer's sinusoids of positions are float32, and the same ones.
            torch.testing.assert_close(row[:count], alone[0, :count], rtol=1e-9, atol=1e-9)
    return encoded.size(1), counts.tolist()
