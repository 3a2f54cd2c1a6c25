"""What a figure was measured with: machine, versions, and memory of the process."""

import subprocess
from pathlib import Path

import torch

from models.device.cpu import processor


def describe(device: torch.device) -> dict[str, str | int]:
    """Return the device, torch's threads, and the versions of torch and of this repository."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": _commit(),
    }


def process_bytes(field: str) -> int:
    """Return an amount of memory of this process, by its name in /proc/self/status, such as VmHWM."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def _commit() -> str:
    root = Path(__file__).resolve().parent
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:  # no git
        return "unknown"
    return asked.stdout.strip() or "unknown"
