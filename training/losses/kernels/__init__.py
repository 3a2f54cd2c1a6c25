"""Triton kernels of the losses, which only a GPU imports. Tests compare each with plain PyTorch."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from models.device.fast_paths import FastPath
from models.kernels import if_it_runs
from training.losses.lattice import Alignments, arcs_of
from training.losses.packed_clips import PackedClips
from training.losses.scores import Outputs, Weighed


class Operations(NamedTuple):
    """The operations of a transducer's loss except products; see scores, lattice and packed_clips."""

    weigh: Callable[..., Weighed]
    pull: Callable[..., Tensor]
    align: Callable[..., Alignments]
    fold: Callable[..., None]


@cache
def operations_on(device: torch.device, dtype: torch.dtype) -> Operations | None:
    """Return the kernels for scores of a dtype, after a trial run.

    None if they do not run, and for float64, which they would round.
    """
    if dtype == torch.float64:
        return None

    def tried() -> Operations:
        from training.losses.kernels.fold import fold  # only a GPU has Triton
        from training.losses.kernels.lattice import align
        from training.losses.kernels.scores import pull, weigh

        outputs = Outputs(blank=2, durations=(0, 1), fast_emit=0.0, sigma=0.0)
        logits, labels = torch.zeros(1, 5, dtype=dtype, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        weighed = weigh(logits, labels, outputs)
        aligned = align(weighed.weights.reshape(-1, 1, 1, 1).repeat(1, 1, 2, 1), arcs_of((0, 1)), labels + 1, labels)
        pull(logits, weighed.mass, labels, aligned.shares[:, 0, 0], outputs)
        row, sums = PackedClips([(1, 0)], labels[:, None], 1), torch.zeros(2, 1, 4, device=device)
        fold(logits[:, :4], row, slice(0, 1), *sums)
        return Operations(weigh, pull, align, fold)

    return if_it_runs(tried, device, FastPath.LOSSES)
