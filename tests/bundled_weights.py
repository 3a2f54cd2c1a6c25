"""The bundled model's weights are the last to come into the repository; until then, what needs them is skipped."""

import pytest

from models.bundled import CHECKPOINT

needs_weights = pytest.mark.skipif(not CHECKPOINT.is_file(), reason=f"{CHECKPOINT.name} is not there yet")
