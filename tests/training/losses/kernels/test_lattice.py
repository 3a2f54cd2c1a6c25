"""The kernels that sum over alignments give what the plain function gives: on a GPU, and in Triton's interpreter."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from training.losses import lattice
from training.losses.kernels.lattice import align
from training.losses.lattice import arcs_of, diagonals_of

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("device", DEVICES)


# The interpreter takes seconds an example: whatever fails is shown as it was found.
@pytest.mark.slow
@settings(deadline=None, max_examples=25, phases=(Phase.reuse, Phase.generate))
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), min_size=1, max_size=3),
    st.sampled_from([(), (0, 1, 2, 3, 4), (1, 2), (0, 3)]),
    st.integers(0, 99),
)
def test_sums_and_shares_are_those_of_the_plain_function(device, clips, durations, seed):
    arcs = arcs_of(durations)
    frames, labels = (torch.tensor(sizes, device=device) for sizes in zip(*clips, strict=True))
    most = int(labels.max())
    shape = len(arcs), len(clips), diagonals_of(int(frames.max()), most), 1 + most
    weights = (-3 * torch.rand(shape, generator=torch.Generator().manual_seed(seed))).to(device)

    expected = lattice.align(weights, arcs, frames, labels)
    found = align(weights.clone(), arcs, frames, labels)

    torch.testing.assert_close(found.log_probability, expected.log_probability)
    diagonal, emitted = (torch.arange(size, device=device) for size in shape[2:])
    frame = diagonal[:, None] - emitted
    real = (frame >= 0) & (frame < frames[:, None, None]) & (emitted <= labels[:, None, None])
    torch.testing.assert_close(found.shares.where(real, 0.0), expected.shares.where(real, 0.0), atol=1e-6, rtol=1e-5)


def test_weights_that_are_not_numbers_make_a_sum_that_is_none(device):
    weights = torch.full((2, 1, 4, 2), torch.nan, device=device)
    frames, labels = torch.tensor([2], device=device), torch.tensor([1], device=device)

    assert align(weights, arcs_of(()), frames, labels).log_probability.isnan().all()
