"""Triton kernels of the losses, which only a GPU imports. Tests compare each with plain PyTorch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath
from training.losses.lattice import Alignments
from training.losses.scores import Weighed


class Operations(NamedTuple):
    """The operations of a transducer's loss except products; see scores, lattice and packed_clips."""

    weigh: Callable[..., Weighed]
    pull: Callable[..., Tensor]
    align: Callable[..., Alignments]
    fold: Callable[..., None]


def operations_on(device: torch.device, dtype: torch.dtype) -> Operations | None:
    """Return the kernels for scores of a dtype where they may be used, and None elsewhere; see ``FastPaths.kernel``."""

    def find() -> Operations | None:
        if dtype == torch.float64:  # which they would round
            return None
        from training.losses.kernels.fold import fold  # only a GPU has Triton
        from training.losses.kernels.lattice import align
        from training.losses.kernels.scores import pull, weigh

        return Operations(weigh, pull, align, fold)

    return FAST_PATHS.kernel(FastPath.LOSSES, find, device, dtype)
