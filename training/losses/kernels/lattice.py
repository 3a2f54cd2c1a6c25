"""Sums over all alignments (training/losses/lattice.py) in two launches, for any number of diagonals.

In plain operations each diagonal takes a dozen launches, and a batch has many hundred diagonals. Here each launch has a
program for each clip, which visits the clip's diagonals: forwards in the first launch, backwards in the second. Its
threads read what others wrote of diagonals visited before, so they synchronise after each.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from training.losses import lattice
from training.losses.lattice import Alignments, Arc

# A program holds all nodes of a diagonal; longer transcripts use plain operations.
_WIDEST = 2048
# The threads of 8 warps have one node each of a diagonal of 256, and its terms in registers.
WARPS = 8


@triton.jit
def _log_sum(terms, top, COUNT: tl.constexpr):
    """Return the log-sum-exp of some terms, given the highest."""
    finite = tl.where(top == float("-inf"), 0.0, top)
    total = tl.exp(terms[0] - finite)
    for term in tl.static_range(1, COUNT):
        total += tl.exp(terms[term] - finite)
    # The total is 0 only if all terms are minus infinity, which then is the result.
    return top + tl.log(tl.where(total == 0.0, 1.0, total))


@triton.jit
def _sum_forwards(
    weights,
    steps,
    frames,
    labels,
    sums,
    diagonals,
    width,
    ARCS: tl.constexpr,
    BLANKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute, for a clip, the log-probability of all paths to each node."""
    clip = tl.program_id(0).to(tl.int64)
    length, most = tl.load(frames + clip), tl.load(labels + clip)
    emitted = tl.arange(0, BLOCK)
    own, apart = clip * diagonals * width, tl.num_programs(0).to(tl.int64) * diagonals * width
    diagonal = length * 0  # of the type of `length`
    while diagonal <= length + most:
        frame = diagonal - emitted
        here = (frame >= 0) & (frame <= length) & (emitted <= most)
        top = tl.where((frame == 0) & (emitted == 0), 0.0, float("-inf")).to(tl.float64)
        terms = (top,)
        for arc in tl.static_range(ARCS):
            step = tl.load(steps + arc)
            if arc < BLANKS:
                source = emitted
                there = here & (frame >= step) & ((frame < length) | (emitted == most))
                entry = own + (diagonal - step) * width + source
            else:
                source = emitted - 1
                there = here & (frame >= step) & (source >= 0) & (frame < length)
                entry = own + (diagonal - step - 1) * width + source
            term = tl.load(sums + entry, mask=there, other=float("-inf"))
            term += tl.load(weights + arc * apart + entry, mask=there, other=0.0).to(tl.float64)
            terms += (term,)
            top = tl.maximum(top, term)
        tl.store(sums + own + diagonal * width + emitted, _log_sum(terms, top, ARCS + 1), mask=here)
        tl.debug_barrier()
        diagonal += 1


@triton.jit
def _sum_backwards(
    weights,
    steps,
    frames,
    labels,
    forwards,
    sums,
    diagonals,
    width,
    ARCS: tl.constexpr,
    BLANKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute, for a clip, the log-probability of all paths from each node to the end, and the shares of arcs."""
    clip = tl.program_id(0).to(tl.int64)
    length, most = tl.load(frames + clip), tl.load(labels + clip)
    emitted = tl.arange(0, BLOCK)
    own, apart = clip * diagonals * width, tl.num_programs(0).to(tl.int64) * diagonals * width
    diagonal = length + most
    whole = tl.load(forwards + own + diagonal * width + most)
    whole = tl.where(whole == float("-inf"), 0.0, whole)
    while diagonal >= 0:
        frame = diagonal - emitted
        here = (frame >= 0) & (frame <= length) & (emitted <= most)
        top = tl.where((frame == length) & (emitted == most) & (length > 0), 0.0, float("-inf")).to(tl.float64)
        terms = (top,)
        for arc in tl.static_range(ARCS):
            step = tl.load(steps + arc)
            weight = weights + arc * apart + own + diagonal * width + emitted
            if arc < BLANKS:
                there = here & ((frame + step < length) | ((frame + step == length) & (emitted == most)))
                target = sums + own + (diagonal + step) * width + emitted
            else:
                there = here & (frame + step < length) & (emitted < most)
                target = sums + own + (diagonal + step + 1) * width + emitted + 1
            term = tl.load(target, mask=there, other=float("-inf"))
            term += tl.load(weight, mask=there, other=0.0).to(tl.float64)
            terms += (term,)
            top = tl.maximum(top, term)
        total = _log_sum(terms, top, ARCS + 1)
        entry = own + diagonal * width + emitted
        before = tl.load(forwards + entry, mask=here, other=float("-inf"))
        for arc in tl.static_range(ARCS):
            share = tl.exp(before + terms[arc + 1] - whole)
            tl.store(weights + arc * apart + entry, share.to(weights.dtype.element_ty), mask=here)
        tl.store(sums + entry, total, mask=here)
        tl.debug_barrier()
        diagonal -= 1


def align(weights: Tensor, arcs: Sequence[Arc], frames: Tensor, labels: Tensor) -> Alignments:
    """Sum over all alignments, as the plain function does, and overwrite the weights by the shares.

    Results of nodes outside a clip are undefined here.
    """
    clips, diagonals, width = weights.shape[1:]
    if width > _WIDEST:
        return lattice.align(weights, arcs, frames, labels)
    forwards, backwards = (weights.new_empty(clips, diagonals, width, dtype=torch.float64) for _ in range(2))
    frames, labels = frames.contiguous(), labels.contiguous()  # kernels read them by their places
    steps = torch.tensor([arc.frames for arc in arcs]).to(weights.device, non_blocking=True)
    sizes = {
        "ARCS": len(arcs),
        "BLANKS": sum(not arc.labels for arc in arcs),
        "BLOCK": triton.next_power_of_2(width),
        "num_warps": WARPS,
    }
    _sum_forwards[(clips,)](weights, steps, frames, labels, forwards, diagonals, width, **sizes)
    _sum_backwards[(clips,)](weights, steps, frames, labels, forwards, backwards, diagonals, width, **sizes)
    ends = forwards[torch.arange(clips, device=weights.device), frames + labels, labels]
    return Alignments(torch.where(frames > 0, ends, -torch.inf), weights)
