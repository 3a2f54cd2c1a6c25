"""Gradients of nodes added up for the frames and predictions that they are made of (training/losses/packed_clips.py).

A frame or a prediction has a program of its own for some of its units. So nothing is added by two at once, the order of
sums does not change from run to run, and neither do the gradients; and values in half precision are not written again
in float32.
"""

import triton
import triton.language as tl
from torch import Tensor

from training.losses.packed_clips import PackedClips, Sums

# Triton's types mean nothing to a type checker.
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, index, no-untyped-call"
# ruff: noqa: ANN001, ANN202, N803

_NODES, _UNITS = 16, 128


@triton.jit
def _fold(met, places, firsts, steps, counts, total, WIDTH: tl.constexpr, NODES: tl.constexpr, UNITS: tl.constexpr):
    """Of a frame or a prediction."""
    row = tl.program_id(0)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    known = unit < WIDTH
    first, step, count = tl.load(firsts + row), tl.load(steps + row), tl.load(counts + row)
    own = total + tl.load(places + row) * WIDTH + unit
    found = tl.load(own, mask=known, other=0.0)
    done = count * 0
    while done < count:
        node = done + tl.arange(0, NODES)
        place = met + (first + node * step)[:, None] * WIDTH + unit[None, :]
        values = tl.load(place, mask=(node < count)[:, None] & known[None, :], other=0.0)
        found += tl.sum(values.to(tl.float32), axis=0)
        done += NODES
    tl.store(own, found, mask=known)


def fold(met: Tensor, row: PackedClips, part: slice, of_heard: Tensor, of_said: Tensor) -> None:
    """Add up what nodes say of their frames and predictions.

    Args:
        met: gradients of what frames and predictions come to together, [nodes, width].
        row: the nodes' row.
        part: which of it they are.
        of_heard: gradients of frames, float32 [frames, width]; changed.
        of_said: gradients of predictions, float32 [predictions, width]; changed.
    """
    _launch(met.contiguous(), row.of_frames(part), of_heard)
    _launch(met.contiguous(), row.of_predictions(part), of_said)


def _launch(met: Tensor, sums: Sums, total: Tensor) -> None:
    width = met.size(1)
    _fold[(len(sums.place), triton.cdiv(width, _UNITS))](
        met,
        sums.place,
        sums.first,
        sums.step,
        sums.count,
        total,
        WIDTH=width,
        NODES=_NODES,
        UNITS=_UNITS,
    )
