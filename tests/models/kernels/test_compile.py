"""The kernels compile where there is no GPU, on tensor cores, and nothing is spilled from registers."""

import json
import os
import subprocess
import sys

import pytest
import torch

from models.kernels import products_suit
from tests.conftest import ROOT

# Kernels without products of matrices.
PLAIN = ("_walk", "_attend_from_token", "_convolve", "_add_and_norm", "_halve_features", "_halve_images")
PLAIN += ("_sum_forwards", "_sum_backwards", "_weigh", "_pull", "_fold")


# What a program may have of shared memory, in bytes, by compute capability: V100, T4 and RTX 20, A100, A10 and RTX 30,
# L4 and RTX 40, H100, B200, RTX 50.
SHARED_MEMORY = {70: 98_304, 75: 65_536, 80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "triton"),
    [
        (90, None),
        # What comes with the torch of images (`make test-long` installs it).
        pytest.param(90, ROOT / "runs" / "triton-3.7.1", marks=pytest.mark.long, id="90-3.7.1"),
        *(pytest.param(other, None, marks=pytest.mark.long) for other in (80, 86, 89, 100, 120)),
    ],
)
def test_kernels_compile(capability, triton, tmp_path):
    if triton and not triton.is_dir():
        pytest.skip(f"no {triton} (make test-long)")
    compiled = compiled_for(capability, tmp_path, triton)

    assert len(compiled) == 53
    # Attention copies a tile of keys while it computes one, and more than one program has room in a multiprocessor.
    (attention,) = [one for one in compiled if (one["kernel"], one["dtype"]) == ("_attend", "bf16")]
    assert attention["copies"]
    assert attention["shared"] <= (SHARED_MEMORY[capability] - 1024) // 2
    for one in compiled:
        assert (one["mma"] > 0) == (one["dtype"] == "bf16" and one["kernel"] not in PLAIN)
        # The expansion is made for an H100; elsewhere a GPU finds the library faster, or cannot launch it.
        if one["kernel"] != "_expand" or capability == 90:
            assert one["spilled"] == 0
            assert one["shared"] <= SHARED_MEMORY[capability]


def test_products_are_the_librarys_in_half_precision_before_ampere(monkeypatch):
    device = torch.device("cuda")

    for capability, suits in (((7, 5), False), ((8, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        assert products_suit(device, torch.float16) == suits
        assert products_suit(device, torch.float32)


@pytest.mark.long
@pytest.mark.parametrize("capability", [70, 75])
def test_before_ampere_kernels_without_products_compile_in_float16(capability, tmp_path):
    """Those with products do not use tensor cores there, which is why plain operations do their work."""
    for one in compiled_for(capability, tmp_path):
        assert one["dtype"] in ("fp16", "fp32")
        assert one["mma"] == 0
        if one["kernel"] in PLAIN:
            assert one["spilled"] == 0
            assert one["shared"] <= SHARED_MEMORY[capability]


def compiled_for(capability, tmp_path, triton=None):
    # In a process of its own: in this one, Triton interprets.
    environment = os.environ | {
        "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, (triton, ROOT)))),
    }  # fmt: skip
    script = ROOT / "tests" / "models" / "kernels" / "compile_kernels.py"

    done = subprocess.run([sys.executable, script, str(capability)], env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
