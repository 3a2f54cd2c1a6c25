"""Sums over all alignments of a transducer (Graves, 2012; Xu et al., 2023), and the share of each arc.

An alignment is a path over nodes (frame, labels emitted). An arc emits the blank or the next label, and advances some
frames: in an RNN-T 1 for the blank and 0 for a label, in a TDT one of its durations. A path begins at node (0, 0), and
ends with a blank past the last frame, after all labels.

Each arc increases the sum of frames and labels, so nodes of equal sum, a diagonal, are computed at once and stored
together: node (frame, labels) at [frame + labels, labels]. Probabilities are logarithms in float64: after a thousand
frames, float32 has three digits left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

_NONE = -torch.inf


@dataclass(frozen=True, slots=True)
class Arc:
    """An arc: frames that it advances, and labels that it emits, 1 or, for the blank, 0."""

    frames: int
    labels: int

    @property
    def diagonals(self) -> int:
        """Diagonals that it advances."""
        return self.frames + self.labels


def arcs_of(durations: Sequence[int]) -> tuple[Arc, ...]:
    """Return the arcs of a node: those with a blank, then those with a label; without durations those of an RNN-T."""
    if not durations:
        return Arc(1, 0), Arc(0, 1)
    blanks = [Arc(duration, 0) for duration in durations if duration > 0]
    return *blanks, *(Arc(duration, 1) for duration in durations)


def diagonals_of(frames: int, labels: int) -> int:
    """Return the number of diagonals of a clip's lattice, that of its end included."""
    return frames + labels + 1


@dataclass(frozen=True, slots=True)
class Alignments:
    """The sums over all alignments of some clips."""

    log_probability: Tensor  # log-probability of the transcripts, float64 [clips]; minus infinity without an alignment
    # Probability of each arc given the transcript, in the shape and dtype of the weights; 0 without an alignment.
    shares: Tensor


def align(weights: Tensor, arcs: Sequence[Arc], frames: Tensor, labels: Tensor) -> Alignments:
    """Sum over all alignments.

    Args:
        weights: log-probabilities of the arcs by the node that they leave, [arcs, clips, diagonals, labels + 1]; values
            outside a clip's frames and labels do not matter.
        arcs: the arcs, those with a blank first.
        frames: number of frames of each clip, [clips].
        labels: number of labels of each clip, [clips].
    """
    leaving = _possible(weights.double(), arcs, frames, labels).permute(2, 0, 1, 3).contiguous()
    forward = _sums(_arriving(leaving, arcs), arcs, _at_start(leaving))
    end = _at_end(leaving, frames, labels)
    # The backward sums are the same recursion from the end, with arcs reversed.
    backward = _sums(leaving.flip(0, 3), arcs, end.flip(0, 2)).flip(0, 2)
    log_probability = backward[0, :, 0]
    total = torch.where(log_probability == _NONE, 0.0, log_probability)
    shares = torch.empty_like(leaving)
    for index, arc in enumerate(arcs):
        onward = pad(backward, (0, 1, 0, 0, 0, arc.diagonals), value=_NONE)
        onward = onward[arc.diagonals :, :, arc.labels : arc.labels + backward.size(2)]
        shares[:, index] = (forward + leaving[:, index] + onward - total[:, None]).exp()
    return Alignments(log_probability, shares.permute(1, 2, 0, 3).to(weights.dtype))


def _possible(weights: Tensor, arcs: Sequence[Arc], frames: Tensor, labels: Tensor) -> Tensor:
    """Return the weights, minus infinity for arcs that begin or end outside their clip's lattice."""
    diagonal, emitted = (torch.arange(size, device=weights.device) for size in weights.shape[2:])
    frame = diagonal[:, None] - emitted
    left, missing = frames[:, None, None] - frame, labels[:, None, None] - emitted
    possible = torch.empty_like(weights, dtype=torch.bool)
    for index, arc in enumerate(arcs):
        if arc.labels:  # only a blank leads past the last frame
            possible[index] = (frame >= 0) & (left > arc.frames) & (missing > 0)
        else:
            possible[index] = (frame >= 0) & (
                (left > arc.frames) & (missing >= 0) | (left == arc.frames) & (missing == 0)
            )
    return weights.masked_fill(~possible, _NONE)


def _arriving(leaving: Tensor, arcs: Sequence[Arc]) -> Tensor:
    """Return the weights by the node that their arcs lead to."""
    arriving = torch.full_like(leaving, _NONE)
    diagonals, width = leaving.size(0), leaving.size(3)
    for index, arc in enumerate(arcs):
        if arc.diagonals < diagonals:
            arriving[arc.diagonals :, index, :, arc.labels :] = leaving[
                : diagonals - arc.diagonals, index, :, : width - arc.labels
            ]
    return arriving


def _at_start(leaving: Tensor) -> Tensor:
    """Return 0 at the node where paths begin and minus infinity elsewhere, [diagonals, clips, width]."""
    start = torch.full_like(leaving[:, 0], _NONE)
    start[0, :, 0] = 0.0
    return start


def _at_end(leaving: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
    """Return 0 at the node where each clip's paths end and minus infinity elsewhere, [diagonals, clips, width]."""
    end = torch.full_like(leaving[:, 0], _NONE)
    # A clip without frames has no end.
    reached = torch.where(frames > 0, 0.0, _NONE).to(end.dtype)
    end[frames + labels, torch.arange(len(frames), device=frames.device), labels] = reached
    return end


def _sums(arriving: Tensor, arcs: Sequence[Arc], start: Tensor) -> Tensor:
    """Return the log-probability of all paths from ``start`` to each node, [diagonals, clips, width]."""
    diagonals, _, clips, width = arriving.shape
    before = max(arc.diagonals for arc in arcs)
    # With padding before the first diagonal and the first node, for arcs that would come from there.
    sums = start.new_full((before + diagonals, clips, 1 + width), _NONE)
    blanks, labels = (
        torch.tensor([before - arc.diagonals for arc in arcs if arc.labels == emitted], device=start.device)
        for emitted in (0, 1)
    )
    for diagonal in range(diagonals):
        sources = torch.cat((sums[blanks + diagonal][..., 1:], sums[labels + diagonal][..., :-1]))
        ways = torch.cat((sources + arriving[diagonal], start[diagonal, None]))
        sums[before + diagonal, :, 1:] = ways.logsumexp(0)
    return sums[before:, :, 1:]
