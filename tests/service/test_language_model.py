"""The language model that the settings name is the one that the engine loads."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
def test_a_service_whose_language_model_is_missing_says_so_and_ends(tmp_path):
    path = tmp_path / "none.ngrams"

    done = subprocess.run(
        [sys.executable, "-m", "cli", "serve", "--port", "0"],
        env=os.environ | {"STENO_LANGUAGE_MODEL": str(path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 2
    assert f"steno serve: {path}: no such file" in done.stderr
