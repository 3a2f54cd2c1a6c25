"""Which dtype a processor computes fastest in without costing accuracy."""

from pathlib import Path

import torch

_CPU_FACTS = Path("/proc/cpuinfo")
_AMPERE = (8, 0)  # compute capability


def default_dtype(device: torch.device) -> torch.dtype:
    """Return bfloat16 where products of it are fast, on GPUs since Ampere and on some CPUs, else float32.

    What this costs of word error rate is in docs/performance.md.
    """
    is_fast = _has_units_for_bfloat16(device) if device.type == "cuda" else has_fast_bfloat16()
    return torch.bfloat16 if is_fast else torch.float32


def has_fast_bfloat16() -> bool:
    """Return whether this CPU multiplies in bfloat16 in less time than in float32.

    Those do that have a matrix unit (AMX), and AMD's with the AVX-512 instructions for it, twice as fast. Intel's with
    these and without the unit gain nothing.
    """
    if torch.cpu._is_amx_tile_supported():  # noqa: SLF001  # no public one in every release
        return True
    return torch.cpu._is_avx512_bf16_supported() and _is_amd()  # noqa: SLF001


def _has_units_for_bfloat16(gpu: torch.device) -> bool:
    """Return whether a GPU multiplies in bfloat16, or only imitates it."""
    return torch.cuda.get_device_capability(gpu) >= _AMPERE


def _is_amd() -> bool:
    try:
        return "AuthenticAMD" in _CPU_FACTS.read_text(encoding="utf-8")
    except OSError:  # a system without such a file
        return False
