"""Fixtures of the tests of the command line."""

import pytest
import torch


@pytest.fixture(autouse=True)
def in_float32(monkeypatch):
    """Compute in float32 on any processor, because expected output was recorded in it."""
    monkeypatch.setattr("models.default_dtype", lambda _: torch.float32)
