"""What tests of the command line share."""

import pytest
import torch


@pytest.fixture(autouse=True)
def in_float32(monkeypatch):
    """What output is compared with was recorded in float32, whatever this processor is fastest in."""
    monkeypatch.setattr("models.default_dtype", lambda _: torch.float32)
