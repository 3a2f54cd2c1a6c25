"""Summing gradients of nodes for their frames and predictions (training/losses/packed_clips.py).

Each frame or prediction has programs of its own, one for each range of units. So there are no atomic additions, and
gradients are the same in each run. Values in half precision are not converted to float32 in memory.
"""

import triton
import triton.language as tl
from torch import Tensor

from training.losses.packed_clips import PackedClips, Sums

_NODES, _UNITS = 16, 128


@triton.jit
def _fold(of_sums, places, firsts, steps, counts, total, WIDTH: tl.constexpr, NODES: tl.constexpr, UNITS: tl.constexpr):
    """Sum the gradients of a frame or a prediction."""
    row = tl.program_id(0)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    known = unit < WIDTH
    first, step, count = tl.load(firsts + row), tl.load(steps + row), tl.load(counts + row)
    own = total + tl.load(places + row) * WIDTH + unit
    found = tl.load(own, mask=known, other=0.0)
    done = count * 0
    while done < count:
        node = done + tl.arange(0, NODES)
        place = of_sums + (first + node * step)[:, None] * WIDTH + unit[None, :]
        values = tl.load(place, mask=(node < count)[:, None] & known[None, :], other=0.0)
        found += tl.sum(values.to(tl.float32), axis=0)
        done += NODES
    tl.store(own, found, mask=known)


def fold(of_sums: Tensor, row: PackedClips, part: slice, of_frames: Tensor, of_predictions: Tensor) -> None:
    """Add gradients of nodes to those of frames and predictions, as the plain function does, in float32."""
    _launch(of_sums.contiguous(), row.of_frames(part), of_frames)
    _launch(of_sums.contiguous(), row.of_predictions(part), of_predictions)


def _launch(of_sums: Tensor, sums: Sums, total: Tensor) -> None:
    width = of_sums.size(1)
    _fold[(len(sums.row), triton.cdiv(width, _UNITS))](
        of_sums,
        sums.row,
        sums.first,
        sums.step,
        sums.count,
        total,
        WIDTH=width,
        NODES=_NODES,
        UNITS=_UNITS,
    )
