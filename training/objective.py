"""What is minimised over a batch."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss, log_softmax

from models.heads.transducer import Joint, Predictor
from models.masking import valid_positions
from training.batch import Batch
from training.distillation import distillation_loss, hidden_loss
from training.losses.transducer import transducer_loss
from training.recipe import Objective


@dataclass(frozen=True, slots=True)
class Guesses:
    """What a student says of a batch.

    Attributes:
        logits: [batch, frames, labels + 1], any floating dtype; None without a CTC head.
        teacher_logits: the same for the teacher's labels, if the student's are others.
        hidden: frames of the teacher's encoder, [batch, frames, width], if it guesses them.
        transducer: what the transcripts cost its transducer, per label, if it has one.
    """

    logits: Tensor | None
    teacher_logits: Tensor | None
    hidden: Tensor | None
    transducer: Tensor | None


@dataclass(frozen=True, slots=True)
class Losses:
    """What a batch costs.

    Attributes:
        total: what is minimised.
        ctc: negative log-probability of the transcripts, per label, or None if it has no weight.
        distillation: cross-entropy against the teacher, per weighted frame, or None without one.
        hidden: distance to the frames of the teacher's encoder, as a share of their size, or None if they are not kept.
        transducer: negative log-probability of the transcripts by the transducer, per label, or None without one.
    """

    total: Tensor
    ctc: Tensor | None
    distillation: Tensor | None
    hidden: Tensor | None
    transducer: Tensor | None


def losses(guesses: Guesses, lengths: Tensor, batch: Batch, objective: Objective) -> Losses:
    """Return what a batch costs.

    Args:
        guesses: the student's.
        lengths: frames of each clip, [batch].
        batch: what was asked for.
        objective: the weights.
    """
    total = torch.zeros((), device=lengths.device)
    ctc = distillation = hidden = None
    log_probabilities = None if guesses.logits is None else log_softmax(guesses.logits.float(), dim=-1)
    if log_probabilities is not None and objective.ctc:
        ctc = ctc_objective(log_probabilities, lengths, batch.tokens, batch.token_lengths)
        total = total + objective.ctc * ctc
    if guesses.transducer is not None:
        total = total + objective.transducer * guesses.transducer
    if batch.targets:
        assert log_probabilities is not None, "who learns from a teacher has a CTC head"
        valid = valid_positions(lengths, log_probabilities.size(1)) & batch.targets.heard[:, None]
        teacher_logits = guesses.teacher_logits
        distillation = distillation_loss(
            log_probabilities if teacher_logits is None else log_softmax(teacher_logits.float(), dim=-1),
            batch.targets.blank,
            batch.targets.labels,
            batch.targets.masses,
            valid,
            objective.label_emphasis,
        )
        total = total + distillation
        if guesses.hidden is not None:
            hidden = hidden_loss(guesses.hidden.float(), batch.targets.hidden, valid)
            total = total + objective.hidden * hidden
    return Losses(total, ctc, distillation, hidden, guesses.transducer)


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


def transducer_objective(
    predictor: Predictor, joint: Joint, encoded: Tensor, lengths: Tensor, batch: Batch, objective: Objective
) -> Tensor:
    """Return what the transcripts cost a transducer, per label of theirs.

    Args:
        predictor: reads the labels.
        joint: scores them.
        encoded: frames of the encoder, [batch, frames, width].
        lengths: frames of each clip, [batch].
        batch: what was said.
        objective: how the loss departs from the log-probability; draws a number of torch's generator if the durations
            of a TDT are left out now and then.
    """
    with_durations = bool(joint.durations) and not (objective.omega and torch.rand(()).item() < objective.omega)
    loss = transducer_loss(
        joint,
        joint.encoder_projection(encoded),
        joint.predictor_projection(predictor.read(batch.tokens)),
        lengths,
        batch.tokens,
        batch.token_lengths,
        with_durations=with_durations,
        fast_emit=objective.fast_emit,
        sigma=objective.sigma,
    )
    return loss / batch.token_lengths.sum().clamp(min=1)
