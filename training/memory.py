"""The memory that a run takes."""

import resource
import sys

import torch

# ru_maxrss is in kilobytes on Linux, and in bytes on macOS.
_UNIT = 1 if sys.platform == "darwin" else 1024


def forget_peak(device: torch.device) -> None:
    """Begin to look for another peak, on a GPU; the peak of a process on a CPU stays."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return the most memory taken: by tensors on a GPU since the last peak was forgotten, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
