"""The losses of a batch."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy, ctc_loss, log_softmax

from models.encoders.masking import valid_positions
from models.heads.attention_decoder import AttentionDecoder
from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint
from training.batch import Batch
from training.losses.transducer import transducer_loss
from training.recipe import Objective

# A label without a loss.
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of a batch."""

    total: Tensor  # the weighted sum, which is minimised
    # What it sums, by name: ``ctc`` and ``transducer``, the negative log-probability of the transcripts, per label;
    # ``attention``, their smoothed cross-entropy, per label. With a teacher ``states``, the mean squared distance to
    # its states or, in the first stage, of what modules return, as a share of their variance; and ``posteriors``, the
    # divergence from its posteriors, per weighted frame.
    parts: dict[str, Tensor]

    def times(self, factor: float) -> "Losses":
        """Return the losses times a factor; those of 0 have gradients of 0, which processes can average as others."""
        return Losses(factor * self.total, {name: factor * loss for name, loss in self.parts.items()})


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """The numbers of labels that losses are divided by: those of a batch, or of all batches of a step."""

    transcripts: float  # labels of the transcripts
    sequences: float  # labels that an attention decoder predicts
    share: float = 1.0  # share of the batch in the step, for losses that are means over frames


def label_counts(batch: Batch, objective: Objective) -> LabelCounts:
    """Count the labels of a batch."""
    sequences = 0.0
    if batch.sequences.size(1):
        # All labels but the first, or the transcript and its end.
        predicted = batch.sequence_lengths - 1 if objective.predict_prompts else batch.token_lengths + 1
        sequences = float(predicted.sum())
    return LabelCounts(float(batch.token_lengths.sum()), sequences)


def ctc_objective(logits: Tensor, lengths: Tensor, batch: Batch, counts: LabelCounts) -> Tensor:
    """Return the CTC loss (Graves et al., 2006) per label of the transcripts.

    Logits are [batch, frames, labels + 1], the blank last. A transcript that is too long for its frames has no
    alignment, and counts 0.
    """
    log_probabilities = log_softmax(logits.float(), dim=-1).transpose(0, 1)
    blank = logits.size(2) - 1
    numbers = lengths, batch.token_lengths
    loss = ctc_loss(log_probabilities, batch.tokens, *numbers, blank, reduction="sum", zero_infinity=True)
    return loss / max(counts.transcripts, 1.0)


def transducer_objective(
    predictor: AnyPredictor,
    joint: Joint,
    encoded: Tensor,
    lengths: Tensor,
    batch: Batch,
    objective: Objective,
    counts: LabelCounts,
    *,
    with_durations: bool,
) -> Tensor:
    """Return the transducer's loss per label of the transcripts.

    ``encoded`` has frames of the encoder, [batch, frames, width], and ``lengths``, on the host, the number of each
    clip's. ``with_durations`` says whether a TDT learns with its durations.
    """
    loss = transducer_loss(
        joint,
        joint.encoder_projection(encoded),
        joint.predictor_projection(predictor.read(batch.tokens)),
        lengths,
        batch.tokens,
        batch.token_lengths,
        with_durations=with_durations and bool(joint.durations),
        fast_emit=objective.fast_emit,
        sigma=objective.sigma,
    )
    return loss / max(counts.transcripts, 1.0)


def attention_objective(
    decoder: AttentionDecoder, encoded: Tensor, lengths: Tensor, batch: Batch, objective: Objective, counts: LabelCounts
) -> Tensor:
    """Return the attention decoder's smoothed cross-entropy per predicted label.

    Each label but the first is predicted from those before it, in one pass (teacher forcing). With label smoothing
    ``e``, the target of the right label is 1 - e, and the others share e evenly (Szegedy et al., 2016), as in NeMo's
    loss. ``encoded`` has frames of the encoder, [batch, frames, width], and ``lengths`` the number of each clip's.
    """
    logits = decoder.read(batch.sequences[:, :-1], decoder.memory(encoded, lengths)).float()
    wanted = batch.sequences[:, 1:]
    predicted = valid_positions(batch.sequence_lengths - 1, wanted.size(1))
    if not objective.predict_prompts:
        prompt = batch.sequence_lengths - batch.token_lengths - 1
        predicted = predicted & ~valid_positions(prompt - 1, wanted.size(1))
    predicted = predicted.to(wanted.device, non_blocking=True)
    outputs = logits.size(2)
    smoothing = objective.label_smoothing * outputs / (outputs - 1)
    loss = cross_entropy(
        logits.flatten(0, 1),
        wanted.masked_fill(~predicted, _IGNORED).flatten(),
        ignore_index=_IGNORED,
        reduction="sum",
        label_smoothing=min(smoothing, 1.0),
    )
    return loss / max(counts.sequences, 1.0)
