"""The batches that kernels are measured with."""

import pytest
import torch

from benchmarks.kernels import _padding


@pytest.mark.parametrize(("batch", "lengths"), [(1, [100]), (3, [100, 75, 50])])
def test_the_longest_clip_has_all_frames_also_alone(batch, lengths):
    padding = _padding(batch, 8.0, torch.device("cpu"))

    assert (padding.lengths.tolist(), padding.time) == (lengths, 100)
