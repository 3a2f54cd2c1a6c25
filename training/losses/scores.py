"""What alignments need of a joint's scores, the weights of arcs, and what they make of them, gradients of scores."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the outputs of a joint stand for, and how the loss departs from minus the log-probability.

    Attributes:
        blank: its place; labels are before it.
        durations: what stands behind it; empty for an RNN-T, and for a TDT that learns as one, whose further outputs
            are then left alone.
        fast_emit: how much more labels are pulled for than blanks.
        sigma: taken from the log-probability of every blank and label, if there are durations.
    """

    blank: int
    durations: tuple[int, ...]
    fast_emit: float
    sigma: float

    @property
    def passing(self) -> list[int]:
        """Places of the durations that pass over frames, which those of blanks do."""
        return [place for place, duration in enumerate(self.durations) if duration > 0]


@dataclass(frozen=True, slots=True)
class Weighed:
    """What is kept of the scores of some nodes.

    Attributes:
        mass: logarithm of the sum of exponentials of labels and blank, [nodes].
        weights: log-probabilities of the arcs out of each node, [arcs, nodes], in the order of ``arcs_of``.
    """

    mass: Tensor
    weights: Tensor


def weigh(logits: Tensor, next_label: Tensor, outputs: Outputs) -> Weighed:
    """Return the log-probabilities of arcs.

    Args:
        logits: of labels, blank and durations, [nodes, outputs].
        next_label: the label that comes next in the transcript, int64 [nodes]; any at its end.
        outputs: what they are.
    """
    scores = logits.to(_wide(logits))
    mass = scores[:, : outputs.blank + 1].logsumexp(1)
    blank = scores[:, outputs.blank] - mass
    label = scores.gather(1, next_label[:, None])[:, 0] - mass
    if not outputs.durations:
        return Weighed(mass, torch.stack((blank, label)))
    durations = _of_durations(scores, outputs).log_softmax(1).T
    return Weighed(mass, torch.cat((blank + durations[outputs.passing], label + durations)) - outputs.sigma)


def pull(logits: Tensor, mass: Tensor, next_label: Tensor, shares: Tensor, outputs: Outputs) -> Tensor:
    """Return the gradients of scores, in their shape and dtype and, where that is possible, in their place.

    The gradient of a score is the probability of what it is of, as far as alignments come to its node, without the
    share of those that take it.

    Args:
        logits: of labels, blank and durations, [nodes, outputs]; lost.
        mass: as ``weigh`` gave it.
        next_label: as ``weigh`` took it.
        shares: of all alignments those that take an arc, [arcs, nodes].
        outputs: what they are.
    """
    blanks = len(outputs.passing) if outputs.durations else 1
    by_blank, by_label = shares[:blanks], shares[blanks:]
    blank, label = by_blank.sum(0), by_label.sum(0) * (1 + outputs.fast_emit)
    scores = logits.to(_wide(logits))
    tokens = scores[:, : outputs.blank + 1]
    tokens.sub_(mass[:, None]).exp_().mul_((blank + label)[:, None])
    tokens[:, outputs.blank] -= blank
    tokens.scatter_add_(1, next_label[:, None], -label[:, None])
    if outputs.durations:
        taken = by_label.clone()
        taken[outputs.passing] += by_blank
        durations = _of_durations(scores, outputs)
        durations.copy_(durations.softmax(1) * taken.sum(0)[:, None] - taken.T)
    else:
        scores[:, outputs.blank + 1 :] = 0
    return scores.to(logits.dtype)


def _of_durations(scores: Tensor, outputs: Outputs) -> Tensor:
    first = outputs.blank + 1
    return scores[:, first : first + len(outputs.durations)]


def _wide(logits: Tensor) -> torch.dtype:
    """Return what scores are summed in."""
    return torch.promote_types(logits.dtype, torch.float32)
