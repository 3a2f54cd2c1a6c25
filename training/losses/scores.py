"""From a joint's logits to the weights of arcs, and from shares of arcs to gradients of logits."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Outputs:
    """The meaning of a joint's outputs, and options of the loss."""

    blank: int  # index of the blank; labels come before it
    # Durations of the outputs after the blank; empty for an RNN-T, and for a TDT that learns as one.
    durations: tuple[int, ...]
    fast_emit: float  # additional weight of the gradients of labels over those of blanks; durations have none
    sigma: float  # subtracted from the log-probability of each blank and label, if there are durations

    @property
    def passing(self) -> list[int]:
        """Return the indices of durations above 0, which blanks may have."""
        return [index for index, duration in enumerate(self.durations) if duration > 0]


@dataclass(frozen=True, slots=True)
class Weighed:
    """What is kept of the logits of some nodes."""

    mass: Tensor  # log-sum-exp of labels and blank, [nodes]
    # Log-probabilities of the arcs out of each node, less ``sigma``, [arcs, nodes], in the order of ``arcs_of``.
    weights: Tensor


def weigh(logits: Tensor, next_label: Tensor, outputs: Outputs) -> Weighed:
    """Return the weights of arcs, given logits [nodes, outputs] and the next label of each node, [nodes]."""
    scores = logits.to(_wide(logits))
    mass = scores[:, : outputs.blank + 1].logsumexp(1)
    blank = scores[:, outputs.blank] - mass
    label = scores.gather(1, next_label[:, None])[:, 0] - mass
    if not outputs.durations:
        return Weighed(mass, torch.stack((blank, label)))
    durations = _of_durations(scores, outputs).log_softmax(1).T
    return Weighed(mass, torch.cat((blank + durations[outputs.passing], label + durations)) - outputs.sigma)


def pull(logits: Tensor, mass: Tensor, next_label: Tensor, shares: Tensor, outputs: Outputs) -> Tensor:
    """Return the gradients of the loss by the logits, in their shape and dtype.

    The gradient of a logit is the probability of its output times that of its node, minus the share of the arcs that
    take it.

    Args:
        logits: logits of labels, blank and durations, [nodes, outputs]; overwritten by the result if they have the
            dtype for sums.
        mass: from ``weigh``.
        next_label: see ``weigh``.
        shares: shares of the arcs, [arcs, nodes].
        outputs: the meaning of the outputs.
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
    """Return the dtype for sums: float32, or float64 for logits in float64."""
    return torch.promote_types(logits.dtype, torch.float32)
