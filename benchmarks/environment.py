"""The machine and the versions that a figure was measured with."""

import subprocess
from pathlib import Path

import torch

from service.engine.budgets import processor


def describe(device: torch.device) -> dict[str, str | int]:
    """Return the device, its threads, and the versions of torch and of this repository."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": _commit(),
    }


def _commit() -> str:
    root = Path(__file__).resolve().parent
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"
