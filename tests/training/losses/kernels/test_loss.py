"""The whole loss with the kernels is the loss without: on a GPU, and in Triton's interpreter on a CPU."""

import dataclasses
from functools import partial

import pytest
import torch

from models.device.fast_paths import FAST_PATHS, FastPaths
from models.heads.transducer import Joint
from tests.models.no_waiting import no_waiting
from training.losses import transducer
from training.losses.kernels import Operations, operations_on
from training.losses.kernels.fold import fold
from training.losses.kernels.lattice import align
from training.losses.kernels.scores import pull, weigh
from training.losses.transducer import Room, compare_kernels, transducer_loss

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("room", [Room(1 << 20, 0), Room(60, 40)], ids=["whole", "in parts"])
@pytest.mark.parametrize(("durations", "with_durations"), [((), True), ((0, 1, 2), True), ((0, 1, 2), False)])
def test_kernels_change_nothing(monkeypatch, device, room, durations, with_durations):
    torch.manual_seed(0)
    joint = Joint(3, 4, 8, 9, durations).to(device)
    sizes = [(5, 3), (3, 0), (1, 1), (4, 2)]
    frames, labels = (torch.tensor(each, device=device) for each in zip(*sizes, strict=True))
    encoded, predicted = (torch.randn(4, size, 8, device=device, requires_grad=True) for size in (5, 4))
    tokens = torch.randint(0, 9, (4, 3), device=device)
    learned = encoded, predicted, joint.output.weight, joint.output.bias

    def loss_and_gradients(operations):
        monkeypatch.setattr(transducer, "operations_on", lambda *_: operations)
        given = joint, encoded, predicted, frames, tokens, labels
        loss = transducer_loss(*given, with_durations=with_durations, fast_emit=0.1, sigma=0.05, room=room)
        return loss.detach(), *torch.autograd.grad(loss, learned)

    plain, kernels = loss_and_gradients(None), loss_and_gradients(Operations(weigh, pull, align, fold))

    for ours, expected in zip(kernels, plain, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
def test_the_host_waits_for_nothing_where_it_knows_the_lengths():
    joint = Joint(3, 4, 8, 9, (0, 1, 2)).cuda()
    encoded, predicted = (torch.randn(3, size, 8, device="cuda", requires_grad=True) for size in (5, 4))
    given = encoded, predicted, torch.tensor([5, 3, 1]), torch.zeros(3, 3, dtype=torch.int64, device="cuda")
    transducer_loss(joint, *given, torch.tensor([3, 0, 1])).backward()  # kernels are compiled

    with no_waiting():
        transducer_loss(joint, *given, torch.tensor([3, 0, 1]), room=Room(60, 40)).backward()


@pytest.fixture
def suiting(device, monkeypatch):
    """On a CPU, kernels run in Triton's interpreter; each test compares anew."""
    monkeypatch.setattr(FastPaths, "suits", lambda *_: True)
    monkeypatch.setattr(transducer, "_COMPARED_CLIPS", ((5, 3), (1, 1), (1, 0)))
    compare_kernels.cache_clear()
    FAST_PATHS.__init__()
    yield torch.device(device)
    FAST_PATHS.__init__()
    compare_kernels.cache_clear()


def first_loss(device, dtype):
    """The first loss of a process, which compares kernels before it uses them."""
    torch.manual_seed(0)
    joint = Joint(3, 4, 8, 9, (0, 1, 2)).to(device, dtype)
    encoded, predicted = (torch.ones(1, size, 8, device=device, dtype=dtype) for size in (2, 2))
    labels = torch.zeros(1, 1, dtype=torch.int64, device=device)
    return transducer_loss(joint, encoded, predicted, torch.tensor([2]), labels, torch.tensor([1]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_that_agree_are_used_in_that_dtype(suiting, dtype):
    first_loss(suiting, dtype)

    assert FAST_PATHS.states() == {"losses": "used"}
    device = torch.empty(0, device=suiting).device
    assert operations_on(device, dtype)
    assert operations_on(device, torch.float16) is None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["weigh", "align", "pull", "fold"])
def test_one_that_computes_wrong_numbers_is_left_out(suiting, monkeypatch, name):
    with FAST_PATHS.plainly():
        expected = first_loss(suiting, torch.float32)
    compare_kernels.cache_clear()
    module = {"weigh": "scores", "align": "lattice", "pull": "scores", "fold": "fold"}[name]
    right = Operations(weigh, pull, align, fold)
    monkeypatch.setattr(f"training.losses.kernels.{module}.{name}", partial(wrong, getattr(right, name)))

    assert torch.equal(first_loss(suiting, torch.float32), expected)
    assert FAST_PATHS.states() == {"losses": "disagreed"}


def wrong(right, *args):
    """The results of an operation, each a tenth larger; ``fold`` adds its own to its last arguments."""
    result = right(*args)
    found = args[-2:] if result is None else (result,)
    if dataclasses.is_dataclass(result):
        found = [getattr(result, field.name) for field in dataclasses.fields(result)]
    for each in found:
        each.mul_(1.1)
    return result


def test_a_cpu_does_without():
    assert operations_on(torch.device("cpu"), torch.float32) is None
