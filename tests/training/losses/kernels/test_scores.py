"""The kernels of scores give what the plain functions give: on a GPU, and in Triton's interpreter on a CPU."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from training.losses import scores
from training.losses.kernels.scores import pull, weigh
from training.losses.lattice import arcs_of
from training.losses.scores import Outputs

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
pytestmark = pytest.mark.parametrize("device", DEVICES)


# The interpreter takes seconds an example: whatever fails is shown as it was found.
@pytest.mark.slow
@settings(deadline=None, max_examples=30, phases=(Phase.reuse, Phase.generate))
@given(
    dtype=st.sampled_from(sorted(TOLERANCE, key=str)),
    nodes=st.integers(1, 6),
    labels=st.integers(1, 90),
    joint_durations=st.integers(0, 5),
    durations=st.sampled_from([(), (0, 1, 2, 3, 4), (1, 2), (0, 3)]),
    options=st.fixed_dictionaries(
        {
            "fast_emit": st.sampled_from([0.0, 0.3]),
            "sigma": st.sampled_from([0.0, 0.05]),
        }
    ),
    seed=st.integers(0, 99),
)
def test_weights_and_gradients_are_those_of_the_plain_functions(
    device, dtype, nodes, labels, joint_durations, durations, options, seed
):
    random = torch.Generator().manual_seed(seed)
    outputs = Outputs(labels, durations, **options)
    # A TDT that learns as an RNN-T has outputs that nothing is learned of.
    width = labels + 1 + (len(durations) or joint_durations)
    logits = (3 * torch.randn(nodes, width, generator=random)).to(device, dtype)
    following = torch.randint(labels, (nodes,), generator=random).to(device)
    shares = torch.rand(len(arcs_of(durations)), nodes, generator=random).to(device)

    expected, found = scores.weigh(logits.clone(), following, outputs), weigh(logits, following, outputs)
    pulled = scores.pull(logits.clone(), expected.mass, following, shares, outputs)
    in_place = logits.clone()
    ours = pull(in_place, found.mass, following, shares, outputs)

    if not durations:  # sigma is a TDT's
        assert scores.weigh(logits, following, Outputs(labels, (), 0.0, 0.0)).weights.equal(expected.weights)
    tolerance = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(found.mass, expected.mass, **tolerance)
    torch.testing.assert_close(found.weights, expected.weights, **tolerance)
    torch.testing.assert_close(ours, pulled, **tolerance)
    assert ours.data_ptr() == in_place.data_ptr()
