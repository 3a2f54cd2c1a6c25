"""Weights of arcs from scores, and gradients of scores (training/losses/scores.py), each in one pass.

Plain operations convert scores in half precision to float32 in memory, and read and write them several times. Here a
program has the scores of a node in registers. All sums are float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from training.losses.scores import Outputs, Weighed

_NO_DURATION = -1


@triton.jit
def _weigh(
    logits,
    next_label,
    mass,
    weights,
    nodes,
    sigma,
    OUTPUTS: tl.constexpr,
    BLANK: tl.constexpr,
    DURATIONS: tl.constexpr,
    RESTING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the weights of a node."""
    node = tl.program_id(0).to(tl.int64)
    own = logits + node * OUTPUTS
    column = tl.arange(0, BLOCK)
    scores = tl.load(own + column, mask=column < OUTPUTS, other=float("-inf")).to(tl.float32)
    tokens = tl.where(column <= BLANK, scores, float("-inf"))
    top = tl.max(tokens, axis=0)
    total = top + tl.log(tl.sum(tl.exp(tokens - top), axis=0))
    label = tl.load(own + tl.load(next_label + node)).to(tl.float32) - total - sigma
    blank = tl.load(own + BLANK).to(tl.float32) - total - sigma
    tl.store(mass + node, total)
    if DURATIONS == 0:
        tl.store(weights + node, blank)
        tl.store(weights + nodes + node, label)
    else:
        jumps = tl.where((column > BLANK) & (column <= BLANK + DURATIONS), scores, float("-inf"))
        top = tl.max(jumps, axis=0)
        jumps -= top + tl.log(tl.sum(tl.exp(jumps - top), axis=0))
        duration = column - BLANK - 1
        inside = (duration >= 0) & (duration < DURATIONS)
        # Blanks have no arc of duration 0, so they have one arc less if there is such a duration.
        blanks: tl.constexpr = DURATIONS - (RESTING >= 0)
        passing = duration
        if RESTING >= 0:
            passing = duration - (duration > RESTING).to(tl.int32)
        passes = inside & (duration != RESTING)
        tl.store(weights + passing.to(tl.int64) * nodes + node, blank + jumps, mask=passes)
        tl.store(weights + (blanks + duration).to(tl.int64) * nodes + node, label + jumps, mask=inside)


@triton.jit
def _pull(
    logits,
    mass,
    next_label,
    shares,
    nodes,
    emphasis,
    OUTPUTS: tl.constexpr,
    BLANK: tl.constexpr,
    DURATIONS: tl.constexpr,
    RESTING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Overwrite the scores of a node by their gradients."""
    node = tl.program_id(0).to(tl.int64)
    own = logits + node * OUTPUTS
    column = tl.arange(0, BLOCK)
    scores = tl.load(own + column, mask=column < OUTPUTS, other=float("-inf")).to(tl.float32)
    blank = tl.load(shares + node) * 0.0
    label = blank
    duration = column - BLANK - 1
    taken = tl.zeros((BLOCK,), tl.float32)
    if DURATIONS == 0:
        blank = tl.load(shares + node)
        label = tl.load(shares + nodes + node)
    else:
        blanks: tl.constexpr = DURATIONS - (RESTING >= 0)
        for arc in tl.static_range(2 * DURATIONS - (RESTING >= 0)):
            share = tl.load(shares + arc * nodes + node)
            if arc < blanks:
                blank += share
                taken += tl.where(duration == arc + ((RESTING >= 0) & (arc >= RESTING)), share, 0.0)
            else:
                label += share
                taken += tl.where(duration == arc - blanks, share, 0.0)
    pulled = label * emphasis
    probability = tl.exp(scores - tl.load(mass + node))
    gradient = tl.where(column <= BLANK, probability, 0.0) * (blank + pulled)
    gradient -= tl.where(column == BLANK, blank, 0.0)
    gradient -= tl.where(column == tl.load(next_label + node), pulled, 0.0)
    if DURATIONS > 0:
        jumps = tl.where((duration >= 0) & (duration < DURATIONS), scores, float("-inf"))
        odds = tl.exp(jumps - tl.max(jumps, axis=0))
        gradient += odds / tl.sum(odds, axis=0) * (blank + label) - taken
    tl.store(own + column, gradient.to(logits.dtype.element_ty), mask=column < OUTPUTS)


def weigh(logits: Tensor, next_label: Tensor, outputs: Outputs) -> Weighed:
    """Return the log-probabilities of arcs, as the plain function does; durations ascend."""
    nodes, width = logits.shape
    arcs = 2 * len(outputs.durations) - (0 in outputs.durations) if outputs.durations else 2
    mass, weights = (torch.empty(*size, nodes, dtype=torch.float32, device=logits.device) for size in ((), (arcs,)))
    sigma = outputs.sigma if outputs.durations else 0.0
    _weigh[(nodes,)](logits, next_label, mass, weights, nodes, sigma, **_shape(width, outputs))
    return Weighed(mass, weights)


def pull(logits: Tensor, mass: Tensor, next_label: Tensor, shares: Tensor, outputs: Outputs) -> Tensor:
    """Overwrite logits by their gradients, those of the plain function, and return them; durations ascend."""
    nodes, width = logits.shape
    _pull[(nodes,)](
        logits,
        mass,
        next_label,
        shares.contiguous(),
        nodes,
        1 + outputs.fast_emit,
        **_shape(width, outputs),
    )
    return logits


def _shape(width: int, outputs: Outputs) -> dict[str, int]:
    durations = outputs.durations
    return {
        "OUTPUTS": width,
        "BLANK": outputs.blank,
        "DURATIONS": len(durations),
        "RESTING": durations.index(0) if 0 in durations else _NO_DURATION,
        "BLOCK": triton.next_power_of_2(width),
    }
