"""The kernel adds up what the plain function adds up: on a GPU, and in Triton's interpreter on a CPU."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from training.losses import packed_clips as plain
from training.losses.kernels.fold import fold
from training.losses.packed_clips import PackedClips

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("device", DEVICES)


# The interpreter takes seconds an example: whatever fails is shown as it was found.
@pytest.mark.slow
@settings(deadline=None, max_examples=20, phases=(Phase.reuse, Phase.generate))
@given(
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    sizes=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4)), min_size=1, max_size=4).filter(
        lambda sizes: any(frames for frames, _ in sizes)
    ),
    width=st.integers(1, 140),
    most=st.integers(1, 60),
    padding=st.integers(0, 2),
)
def test_frames_and_predictions_get_the_sums_of_their_nodes(device, dtype, sizes, width, most, padding):
    frames, labels = (max(each) + padding for each in zip(*sizes, strict=True))
    row = PackedClips(sizes, torch.zeros(len(sizes), labels + 1, dtype=torch.int64, device=device), frames)
    met = torch.randn(row.size, width, generator=torch.Generator().manual_seed(most)).to(device, dtype)
    shapes = (len(sizes) * frames, width), (len(sizes) * (labels + 1), width)
    expected, found = ([torch.ones(shape, device=device) for shape in shapes] for _ in range(2))

    for part in row.parts(most):
        plain.fold(met[part], row, part, *expected)
        fold(met[part], row, part, *found)

    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
