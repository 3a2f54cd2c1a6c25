"""The choice of an engine's device, and what a model on it gets."""

import pytest
import torch

from cli.errors import CommandError
from cli.model_options import torch_device
from service.engine.process import _device, _prepared
from service.engine.protocol import Load


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


def test_a_gpu_of_amds_is_none_although_its_torch_calls_it_cuda(two_gpus, monkeypatch):
    monkeypatch.setattr("torch.version.hip", "6.4")

    assert _device("auto") == torch_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="has no CUDA"):
        _device("cuda")
    with pytest.raises(CommandError, match="no CUDA device"):
        torch_device("cuda")


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="use auto, cpu, cuda or cuda:N"):
        _device("meta")


def test_the_tensors_of_an_engine_leave_room_on_its_gpu(two_gpus, monkeypatch):
    limits = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *limit: limits.append(limit))

    assert _prepared(Load("m", "", "cuda:1", "auto", [1.0], None, None)) == torch.device("cuda:1")
    assert limits == [(0.9, 1)]
