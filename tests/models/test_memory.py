import pytest
import torch

from models.memory import is_out_of_memory


def test_too_little_memory_is_told_from_other_errors():
    for make, expected in ((torch.empty, True), (bytes, True), (torch.ones(3).view, False)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            make(2**60)
        assert is_out_of_memory(caught.value) is expected
