"""The loss, computed part by part, equals that of all scores at once in value and gradients."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from models.heads.transducer import Joint
from tests.conftest import ROOT
from training.losses.lattice import align, arcs_of
from training.losses.transducer import Room, transducer_loss

WIDTH = 6
LABELS = 5  # without the blank


def batch(sizes, durations=(), seed=0, dtype=torch.float64, vocabulary=LABELS):
    """A joint, and inputs for clips with these numbers of frames and labels."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        joint = Joint(3, 4, WIDTH, vocabulary, durations).to(dtype)
        encoded = torch.randn(len(sizes), max(frames for frames, _ in sizes), WIDTH, dtype=dtype, requires_grad=True)
        predicted = torch.randn(len(sizes), 1 + max(each for _, each in sizes), WIDTH, dtype=dtype, requires_grad=True)
        tokens = torch.randint(0, vocabulary, (len(sizes), predicted.size(1) - 1))
    frames, labels = (torch.tensor(each) for each in zip(*sizes, strict=True))
    return joint, encoded, predicted, frames, tokens, labels


def by_diagonal(weights):
    """Weights [arcs, clips, frames, labels + 1] by diagonal, as ``align`` takes them."""
    width = weights.size(3)
    columns = [torch.nn.functional.pad(weights[..., label], (label, width - label)) for label in range(width)]
    return torch.stack(columns, dim=3)


def plain(joint, encoded, predicted, frames, tokens, labels, *, with_durations=True, sigma=0.0):
    """The loss from all scores at once; autograd differentiates all but the sum over alignments."""
    logits = joint(encoded[:, :, None], predicted[:, None])
    of_labels, of_durations = joint.split(logits)
    log = of_labels.log_softmax(-1)
    durations = joint.durations if with_durations else ()
    blank = log[..., joint.blank]
    following = torch.nn.functional.pad(tokens, (0, 1))[:, None, :, None].expand(-1, log.size(1), -1, -1)
    label = log.gather(3, following)[..., 0]
    if durations:
        jumps = of_durations.log_softmax(-1)
        blanks = [blank + jumps[..., place] for place, duration in enumerate(durations) if duration > 0]
        weights = torch.stack([*blanks, *(label + jumps[..., place] for place in range(len(durations)))]) - sigma
    else:
        weights = torch.stack([blank, label])
    weights = by_diagonal(weights)
    aligned = align(weights.detach(), arcs_of(durations), frames, labels)
    # Shares are the derivatives of the log-probability (test_lattice.py).
    pull = (aligned.shares * torch.where(aligned.shares > 0, weights, 0.0)).sum()
    value = aligned.log_probability.where(aligned.log_probability > -torch.inf, 0.0).sum()
    return pull.detach() - value - pull


def gradients(loss, joint, encoded, predicted):
    return torch.autograd.grad(loss, (encoded, predicted, joint.output.weight, joint.output.bias))


SIZES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=5).filter(
    lambda sizes: any(frames for frames, _ in sizes)
)
ROOMS = st.builds(Room, st.integers(1, 400), st.sampled_from([0, 15, 1000]))
DURATIONS = st.sampled_from([(), (0, 1, 2, 3, 4), (1, 2), (0, 3)])


@given(SIZES, DURATIONS, st.booleans(), ROOMS)
@settings(max_examples=60, deadline=None)
def test_with_any_room_it_is_the_loss_of_all_scores_at_once(sizes, durations, with_durations, room):
    inputs = batch(sizes, durations)
    sigma = 0.05 if durations and with_durations else 0.0

    expected = plain(*inputs, with_durations=with_durations, sigma=sigma)
    loss = transducer_loss(*inputs, with_durations=with_durations, sigma=0.05, room=room)

    torch.testing.assert_close(loss, expected.detach())
    for ours, theirs in zip(gradients(loss, *inputs[:3]), gradients(expected, *inputs[:3]), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_the_limit_on_scores_holds_for_a_hidden_layer_wider_than_the_outputs(durations):
    joint, *inputs = batch([(9, 4), (7, 5), (8, 3)], durations, vocabulary=1)
    sizes = []
    joint.activation.register_forward_hook(lambda _module, _inputs, hidden: sizes.append(hidden.numel()))

    transducer_loss(joint, *inputs, room=Room(60, 20)).backward()

    assert sizes
    assert max(sizes) <= 60


def test_a_second_derivative_is_refused():
    joint, encoded, predicted, *rest = batch([(3, 2)])
    (first,) = torch.autograd.grad(
        transducer_loss(joint, encoded, predicted, *rest).square(), encoded, create_graph=True
    )

    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_close(durations, dtype):
    """With rounded frames and scores, the loss is within 0.5 %, and each gradient within 3 % of its norm."""
    sizes = [(40, 12), (31, 7), (12, 0)]
    exact = batch(sizes, durations, vocabulary=200)
    rounded = batch(sizes, durations, vocabulary=200)
    with torch.no_grad():  # The derivative of ReLU jumps where rounding changes a sign, so sums are far from 0.
        for one in (exact, rounded):
            one[1].add_(torch.tensor([8.0, 8.0, 8.0, 8.0, -8.0, -8.0]))
    halves = [each.detach().to(dtype).requires_grad_() for each in rounded[1:3]]
    rounded[0].float()  # weights are float32, as in training

    expected = transducer_loss(*exact)
    loss = transducer_loss(rounded[0], *halves, *rounded[3:])

    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=5e-3)
    theirs = gradients(expected, *exact[:3])
    for ours, exactly in zip(gradients(loss, rounded[0], *halves), theirs, strict=True):
        assert (ours - exactly).norm() < 0.03 * exactly.norm()


def test_weights_get_gradients_of_their_own_dtype_under_autocast():
    joint, encoded, predicted, *rest = batch([(9, 3)], dtype=torch.float32)

    with torch.autocast("cpu", torch.bfloat16):
        loss = transducer_loss(joint, encoded.bfloat16(), predicted.bfloat16(), *rest)
    loss.backward()

    assert joint.output.weight.grad.dtype == encoded.grad.dtype == torch.float32


def test_without_gradients_none_are_computed():
    joint, *inputs = batch([(9, 3), (4, 1)], (0, 1, 2))
    scored = []
    joint.activation.register_forward_hook(lambda *_: scored.append(1))
    room = Room(60, 1000)  # several parts, which gradients score a second time
    expected = transducer_loss(joint, *inputs, room=room)
    with_gradients = len(scored)

    with torch.no_grad():
        loss = transducer_loss(joint, *inputs, room=room)

    assert loss == expected.detach()
    assert not loss.requires_grad
    assert len(scored) - with_gradients == with_gradients / 2


def nemos():
    """NeMo's losses (tests/data): the settings and the tensors of each case."""
    with safe_open(ROOT / "tests" / "data" / "transducer_losses.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no mapping
        cases = json.loads(file.metadata()["cases"])
    of_cases = {name: {} for name in cases}
    for key, tensor in tensors.items():
        name, _, what = key.partition(".")
        of_cases[name][what] = tensor
    return [pytest.param(case, of_cases[name], id=name) for name, case in cases.items()]


@pytest.mark.parametrize(("case", "nemo"), nemos())
def test_losses_and_gradients_are_nemos(case, nemo):
    durations = tuple(case.get("durations", ()))
    labels, width = nemo["weight"].shape
    joint = Joint(1, 1, width, labels - 1 - len(durations), durations)
    joint.output.weight, joint.output.bias = (torch.nn.Parameter(nemo[key]) for key in ("weight", "bias"))
    encoded, predicted = (nemo[key].clone().requires_grad_() for key in ("heard", "said"))
    options = {"fast_emit": 0.0} | {key: value for key, value in case.items() if key != "durations"}

    loss = transducer_loss(joint, encoded, predicted, nemo["frames"], nemo["tokens"], nemo["labels"], **options)

    # On a CPU, unlike on a GPU, NeMo multiplies the loss by 1 + fast_emit, too.
    torch.testing.assert_close(loss, nemo["losses"].sum() / (1 + options["fast_emit"]))
    theirs = (nemo[f"{key}_gradient"] for key in ("heard", "said", "weight", "bias"))
    for ours, expected in zip(gradients(loss, joint, encoded, predicted), theirs, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


def test_scores_that_are_nan_make_the_loss_nan():
    joint, encoded, *rest = batch([(4, 2), (3, 1)])

    assert transducer_loss(joint, encoded.masked_fill(encoded > -torch.inf, torch.nan), *rest).isnan()
