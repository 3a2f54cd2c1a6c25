"""The average follows the weights, forgets the start soon, and does not touch the network."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from training.ema import WeightAverage


class Launched(TorchDispatchMode):
    """The operations that are called while it is entered."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_it_is_the_exponential_moving_average_with_a_short_memory_at_first():
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, 100.0)
    average = WeightAverage(network, decay=0.5)

    expected = 100.0
    for step in range(20):
        nn.init.constant_(network.weight, float(step))
        average.update(network, step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step

    assert average.state["weight"].item() == pytest.approx(expected)
    assert network.weight.item() == 19


def test_counters_are_copied_and_statistics_averaged():
    network = nn.BatchNorm1d(1)
    average = WeightAverage(network, decay=0.9)

    network.running_mean.fill_(1.0)
    network.num_batches_tracked.fill_(7)
    average.update(network, step=0)

    assert average.state["num_batches_tracked"].item() == 7
    assert average.state["running_mean"].item() == pytest.approx(0.9)


def test_all_weights_are_averaged_at_once():
    network = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
    average = WeightAverage(network, decay=0.9)

    with Launched() as launched:
        average.update(network, step=0)

    assert sum("lerp" in name for name in launched.names) == 1


def test_a_restored_average_goes_on_from_a_copy():
    network = nn.Linear(2, 2)
    first, second = WeightAverage(network, 0.9), WeightAverage(nn.Linear(2, 2), 0.9)

    second.restore(first.state)
    first.state["weight"].zero_()

    assert torch.equal(second.state["weight"], network.weight)
