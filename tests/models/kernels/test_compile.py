"""The kernels compile for an H100 where there is no GPU, on tensor cores, and nothing is spilled from registers."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

if os.environ.get("CI") != "true":
    pytest.importorskip("triton", reason="Triton is not installed; on Linux, make setup does it")

# Kernels without products of matrices.
PLAIN = ("_walk", "_convolve", "_add_and_norm", "_halve_features", "_halve_images")


def test_kernels_compile_for_hopper(tmp_path):
    # In a process of its own: in this one, Triton interprets.
    environment = os.environ | {
        "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    script = ROOT / "tests" / "models" / "kernels" / "compile_for_hopper.py"

    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(compiled) == 26
    for one in compiled:
        assert one["spilled"] == 0
        assert one["shared"] < 150_000
        assert (one["mma"] > 0) == (one["dtype"] == "bf16" and one["kernel"] not in PLAIN)
