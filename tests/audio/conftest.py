"""What several tests of audio need."""

import os

import pytest

from tests.soak.processes import decoders


@pytest.fixture
def children():
    """Returns the processes that decode for this test and live, by id."""
    others = set(decoders(os.getpid()))
    return lambda: set(decoders(os.getpid())) - others
