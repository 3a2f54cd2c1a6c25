"""The choice of an engine's device."""

import pytest
import torch

from service.engine.process import _device


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1", "cpu"])
def test_a_device_that_is_there_is_taken(name, two_gpus):
    assert _device(name) == torch.device(name)


def test_a_device_that_is_not_there_is_refused_and_the_last_one_named(two_gpus):
    with pytest.raises(ValueError, match="device 'cuda:2': the last of this machine is cuda:1"):
        _device("cuda:2")


def test_a_machine_without_cuda_gets_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ValueError, match="has no CUDA"):
        _device("cuda")


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="use auto, cpu, cuda or cuda:N"):
        _device("meta")
