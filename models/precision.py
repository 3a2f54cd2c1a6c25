"""Which dtype a processor computes fastest in without costing accuracy, and what is said of one that it is slow in."""

import logging

import torch

from models.cpu import gain_of_bfloat16

log = logging.getLogger("steno.models")

_AMPERE = (8, 0)  # compute capability
# Gains of bfloat16 on CPUs are 2 or more, or none; in between, its rounding is not worth it.
_LEAST_GAIN = 1.25
_SLOW = 0.8


def default_dtype(device: torch.device) -> torch.dtype:
    """Return bfloat16 where products of it are fast, on GPUs since Ampere and on some CPUs, else float32.

    On a CPU both are timed, which takes some milliseconds once. What bfloat16 costs of word error rate is in
    docs/performance.md.
    """
    is_fast = _has_units_for_bfloat16(device) if device.type == "cuda" else gain_of_bfloat16() > _LEAST_GAIN
    return torch.bfloat16 if is_fast else torch.float32


def warn_of_slow_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Log a warning if a dtype that was asked for is slower than float32 on this CPU."""
    if dtype is torch.bfloat16 and device.type == "cpu" and (gain := gain_of_bfloat16()) < _SLOW:
        log.warning("This CPU takes %.1f times as long in bfloat16 as in float32.", 1 / gain)


def keep_products_exact(device: torch.device) -> None:
    """Let a GPU's products be of float32 where that is asked for, and summed in it whatever they are of.

    Otherwise convolutions in float32 round their factors to 10 bits (TF32), and products in bfloat16 that are divided
    between programs round the parts of their sums.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _has_units_for_bfloat16(gpu: torch.device) -> bool:
    """Return whether a GPU multiplies in bfloat16, or only imitates it."""
    return torch.cuda.get_device_capability(gpu) >= _AMPERE
