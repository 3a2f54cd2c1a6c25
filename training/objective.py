"""What is minimised over a batch."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import ctc_loss, log_softmax

from models.masking import valid_positions
from training.batch import Batch
from training.distillation import distillation_loss
from training.recipe import Objective


@dataclass(frozen=True, slots=True)
class Losses:
    """What a batch costs.

    Attributes:
        total: what is minimised.
        ctc: negative log-probability of the transcripts, per label, or None if it has no weight.
        distillation: cross-entropy against the teacher, per weighted frame, or None without one.
    """

    total: Tensor
    ctc: Tensor | None
    distillation: Tensor | None


def losses(
    logits: Tensor, teacher_logits: Tensor | None, lengths: Tensor, batch: Batch, objective: Objective
) -> Losses:
    """Return what a batch costs.

    Args:
        logits: of the student, [batch, frames, labels + 1], any floating dtype.
        teacher_logits: the same for the teacher's labels, if the student's are others.
        lengths: frames of each clip, [batch].
        batch: what was asked for.
        objective: the weights.
    """
    log_probabilities = log_softmax(logits.float(), dim=-1)
    total = log_probabilities.new_zeros(())
    ctc = distillation = None
    if objective.ctc:
        ctc = ctc_objective(log_probabilities, lengths, batch.tokens, batch.token_lengths)
        total = total + objective.ctc * ctc
    if batch.targets:
        distillation = distillation_loss(
            log_probabilities if teacher_logits is None else log_softmax(teacher_logits.float(), dim=-1),
            batch.targets.blank,
            batch.targets.labels,
            batch.targets.masses,
            valid_positions(lengths, logits.size(1)) & batch.targets.heard[:, None],
            objective.label_emphasis,
        )
        total = total + distillation
    return Losses(total, ctc, distillation)


def ctc_objective(log_probabilities: Tensor, lengths: Tensor, tokens: Tensor, token_lengths: Tensor) -> Tensor:
    """Return the CTC loss (Graves et al., 2006) per label of the transcripts.

    Args:
        log_probabilities: [batch, frames, labels + 1], the blank last.
        lengths: frames of each clip, [batch].
        tokens: labels of the transcripts, [batch, longest].
        token_lengths: labels of each transcript, [batch].

    Returns:
        A number. A transcript that does not fit into its clip's frames, which has no alignment at all, counts nothing.
    """
    blank = log_probabilities.size(2) - 1
    of_clips = ctc_loss(
        log_probabilities.transpose(0, 1),
        tokens,
        lengths,
        token_lengths,
        blank=blank,
        reduction="none",
        zero_infinity=True,
    )
    return of_clips.sum() / token_lengths.sum().clamp(min=1)
