"""The dtype that a processor is fastest in without losing accuracy, and a warning about slow ones."""

import logging

import torch

from models.cpu import gain_of_bfloat16

log = logging.getLogger("steno.models")

_AMPERE = (8, 0)  # compute capability
# bfloat16 is at least 2 times as fast as float32 on a CPU, or not faster. Little gain is not worth its rounding.
_LEAST_GAIN = 1.25
_SLOW = 0.8


def default_dtype(device: torch.device) -> torch.dtype:
    """Return bfloat16 where its products are fast, on GPUs since Ampere and on some CPUs, else float32.

    On a CPU both are timed once, which takes some milliseconds. docs/performance.md has the word error rates of both.
    """
    is_fast = _has_units_for_bfloat16(device) if device.type == "cuda" else gain_of_bfloat16() > _LEAST_GAIN
    return torch.bfloat16 if is_fast else torch.float32


def warn_of_slow_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Log a warning if a dtype that was asked for is slower than float32 on this CPU."""
    if dtype is torch.bfloat16 and device.type == "cpu" and (gain := gain_of_bfloat16()) < _SLOW:
        log.warning("This CPU takes %.1f times as long in bfloat16 as in float32.", 1 / gain)


def keep_products_exact(device: torch.device) -> None:
    """On a GPU, keep float32 products in full precision, and sum all products in float32.

    Otherwise convolutions in float32 round their factors to 10 bits (TF32), and products in bfloat16 that are divided
    between programs round their partial sums.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _has_units_for_bfloat16(gpu: torch.device) -> bool:
    """Return whether a GPU has units for bfloat16, and does not emulate it."""
    return torch.cuda.get_device_capability(gpu) >= _AMPERE
