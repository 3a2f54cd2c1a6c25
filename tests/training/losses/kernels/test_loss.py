"""The whole loss with the kernels is the loss without: on a GPU, and in Triton's interpreter on a CPU."""

import os

import pytest
import torch

from models.heads.transducer import Joint
from tests.models.no_waiting import no_waiting
from training.losses import transducer
from training.losses.kernels import Operations, operations_on
from training.losses.transducer import Room, transducer_loss

if os.environ.get("CI") != "true":
    pytest.importorskip("triton", reason="Triton is not installed; on Linux, make setup does it")
from training.losses.kernels.fold import fold
from training.losses.kernels.lattice import align
from training.losses.kernels.scores import pull, weigh

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


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_has_them(dtype):
    assert operations_on(torch.device("cuda"), dtype)


def test_a_cpu_does_without_and_so_do_doubles():
    assert operations_on(torch.device("cpu"), torch.float32) is None
    assert operations_on(torch.device("cuda"), torch.float64) is None
