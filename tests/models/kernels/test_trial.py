"""A kernel that does not run is left out for good; one that found no memory is tried again."""

import pytest
import torch

from models.device.fast_paths import FastPath
from models.kernels import if_it_runs

GPU = torch.device("cuda")


def failing(error):
    def tried():
        raise error

    return tried


def test_a_kernel_that_does_not_compile_is_left_out(caplog):
    assert if_it_runs(failing(RuntimeError("no such instruction")), GPU, FastPath.SUMS) is None

    assert "fast path sums failed, plain operations do its work: no such instruction" in caplog.text


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no room"), RuntimeError("Triton Error [CUDA]: out of memory")]
)
def test_a_trial_without_memory_says_nothing_of_the_kernel(error):
    with pytest.raises(type(error), match=r"no room|out of memory"):
        if_it_runs(failing(error), GPU, FastPath.SUMS)
