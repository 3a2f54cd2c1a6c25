"""Whether Steno computes on a GPU here."""

import torch


def has_gpu() -> bool:
    """Return whether there is a GPU of NVIDIA's that this build of PyTorch can use.

    That for ROCm calls AMD's GPUs CUDA too, but Steno was never tried there.
    """
    return torch.cuda.is_available() and torch.version.hip is None
