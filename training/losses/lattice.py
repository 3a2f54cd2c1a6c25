"""Sums over all alignments of a transducer (Graves, 2012; Xu et al., 2023), and what each arc has of them.

An alignment is a path over nodes (frame, labels said so far). An arc says the blank or the next label, and passes over
some frames: an RNN-T's blank over one and its labels over none, those of a TDT over as many as its durations say. A
path begins at the first frame with no label said, and ends behind the last one, by a blank, with all of them.

Every arc leads to a higher sum of frames and labels, so the nodes of one sum, a diagonal, are computed at once, and lie
side by side: the node (frame, said) at [frame + said, said]. What is summed are probabilities, kept as logarithms in
float64: of those of a thousand frames float32 has three digits left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

_NONE = -torch.inf


@dataclass(frozen=True, slots=True)
class Arc:
    """What an arc does.

    Attributes:
        frames: that it passes over.
        labels: that it says, 1 or, if it says the blank, 0.
    """

    frames: int
    labels: int

    @property
    def diagonals(self) -> int:
        """Diagonals that it passes over."""
        return self.frames + self.labels


def arcs_of(durations: Sequence[int]) -> tuple[Arc, ...]:
    """Return the arcs out of a node: those with a blank, then those with a label; of an RNN-T without durations."""
    if not durations:
        return Arc(1, 0), Arc(0, 1)
    blanks = [Arc(duration, 0) for duration in durations if duration > 0]
    return *blanks, *(Arc(duration, 1) for duration in durations)


def diagonals_of(frames: int, labels: int) -> int:
    """Return how many diagonals have the nodes of so many frames and labels, and the end behind them."""
    return frames + labels + 1


@dataclass(frozen=True, slots=True)
class Alignments:
    """What all alignments of some clips come to.

    Attributes:
        log_probability: of the transcripts, float64 [clips]; minus infinity where there is no alignment.
        shares: of all alignments those that take an arc, by their probabilities, in the shape and dtype of the weights;
            0 where there is none.
    """

    log_probability: Tensor
    shares: Tensor


def align(weights: Tensor, arcs: Sequence[Arc], frames: Tensor, labels: Tensor) -> Alignments:
    """Sum over all alignments.

    Args:
        weights: log-probabilities of the arcs by the node that they leave, [arcs, clips, diagonals, labels + 1]; what
            is beyond a clip's frames and labels does not matter.
        arcs: what they do.
        frames: of each clip, [clips].
        labels: of each clip's transcript, [clips].
    """
    leaving = _possible(weights.double(), arcs, frames, labels).permute(2, 0, 1, 3).contiguous()
    forward = _sums(_arriving(leaving, arcs), arcs, _at_start(leaving))
    end = _at_end(leaving, frames, labels)
    # Backwards it is the same walk, from the end, and arcs arrive where they left.
    backward = _sums(leaving.flip(0, 3), arcs, end.flip(0, 2)).flip(0, 2)
    log_probability = backward[0, :, 0]
    total = torch.where(log_probability == _NONE, 0.0, log_probability)
    shares = torch.empty_like(leaving)
    for place, arc in enumerate(arcs):
        onward = pad(backward, (0, 1, 0, 0, 0, arc.diagonals), value=_NONE)
        onward = onward[arc.diagonals :, :, arc.labels : arc.labels + backward.size(2)]
        shares[:, place] = (forward + leaving[:, place] + onward - total[:, None]).exp()
    return Alignments(log_probability, shares.permute(1, 2, 0, 3).to(weights.dtype))


def _possible(weights: Tensor, arcs: Sequence[Arc], frames: Tensor, labels: Tensor) -> Tensor:
    """Return the weights without arcs that lead nowhere, or leave where nobody comes."""
    diagonal, said = (torch.arange(size, device=weights.device) for size in weights.shape[2:])
    frame = diagonal[:, None] - said
    left, missing = frames[:, None, None] - frame, labels[:, None, None] - said
    possible = torch.empty_like(weights, dtype=torch.bool)
    for place, arc in enumerate(arcs):
        if arc.labels:  # no label is said behind the last frame
            possible[place] = (frame >= 0) & (left > arc.frames) & (missing > 0)
        else:
            possible[place] = (frame >= 0) & (
                (left > arc.frames) & (missing >= 0) | (left == arc.frames) & (missing == 0)
            )
    return weights.masked_fill(~possible, _NONE)


def _arriving(leaving: Tensor, arcs: Sequence[Arc]) -> Tensor:
    """Return the weights by the node to which their arcs lead."""
    arriving = torch.full_like(leaving, _NONE)
    diagonals, width = leaving.size(0), leaving.size(3)
    for place, arc in enumerate(arcs):
        if arc.diagonals < diagonals:
            arriving[arc.diagonals :, place, :, arc.labels :] = leaving[
                : diagonals - arc.diagonals, place, :, : width - arc.labels
            ]
    return arriving


def _at_start(leaving: Tensor) -> Tensor:
    """Return 0 at the node where paths begin and minus infinity elsewhere, [diagonals, clips, width]."""
    start = torch.full_like(leaving[:, 0], _NONE)
    start[0, :, 0] = 0.0
    return start


def _at_end(leaving: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
    """Return the same of the nodes where paths end."""
    end = torch.full_like(leaving[:, 0], _NONE)
    # A clip without frames has no end: nothing was heard.
    reached = torch.where(frames > 0, 0.0, _NONE).to(end.dtype)
    end[frames + labels, torch.arange(len(frames), device=frames.device), labels] = reached
    return end


def _sums(arriving: Tensor, arcs: Sequence[Arc], start: Tensor) -> Tensor:
    """Return the log-probability of all paths to a node, [diagonals, clips, width], from where they start."""
    diagonals, _, clips, width = arriving.shape
    before = max(arc.diagonals for arc in arcs)
    # With room before the first diagonal and the first node, for arcs that would come from there.
    sums = start.new_full((before + diagonals, clips, 1 + width), _NONE)
    blanks, labels = (
        torch.tensor([before - arc.diagonals for arc in arcs if arc.labels == said], device=start.device)
        for said in (0, 1)
    )
    for diagonal in range(diagonals):
        sources = torch.cat((sums[blanks + diagonal][..., 1:], sums[labels + diagonal][..., :-1]))
        ways = torch.cat((sources + arriving[diagonal], start[diagonal, None]))
        sums[before + diagonal, :, 1:] = ways.logsumexp(0)
    return sums[before:, :, 1:]
