"""The peak memory of a run."""

import resource
import sys

import torch

# ru_maxrss is in kilobytes on Linux, and in bytes on macOS.
_UNIT = 1 if sys.platform == "darwin" else 1024


def forget_peak(device: torch.device) -> None:
    """Reset the peak on a GPU; on a CPU the peak of a process cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return the peak memory: of tensors on a GPU since the last reset, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
