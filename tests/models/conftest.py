"""What became of a fast path in one test does not bar it in the next."""

import pytest

from models.device.fast_paths import FAST_PATHS


@pytest.fixture(autouse=True)
def fast_paths():
    FAST_PATHS.__init__()
    yield FAST_PATHS
    FAST_PATHS.__init__()
