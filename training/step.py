"""A step of training: the losses of its parts, their gradients, and the change of the weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from training.batch import Batch
from training.distillation import distillation_losses
from training.errors import TrainingError
from training.objective import (
    LabelCounts,
    Losses,
    attention_objective,
    ctc_objective,
    label_counts,
    transducer_objective,
)
from training.precision import autocast
from training.run import Run
from training.sampler import Position
from training.schedule import rate_of_step


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    loss: float
    losses: dict[str, float]  # its parts by name, as in ``Losses``
    gradient_norm: float  # the gradient's norm before clipping
    learning_rate: float
    audio_seconds: float  # audio in it
    padding_share: float  # share of padding in its audio
    label_padding_share: float  # share of padding in the labels that a decoder reads
    skipped: int  # number of clips that cannot be used
    clips: int  # number of clips that were used
    labels: int  # number of labels of their transcripts


class PartLosses(nn.Module):
    """The loss of a part of a step, as the module whose gradients processes average."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.network = run.network
        self._run = run

    def forward(self, batch: Batch, counts: LabelCounts) -> Losses:
        """Return the losses of a batch, per label of the whole step."""
        return batch_losses(self._run, batch, counts)


def take_step(run: Run, *parts: Batch, part_losses: nn.Module | None = None) -> StepResult:
    """Take a training step of this process's parts; ``part_losses`` is ``PartLosses``, wrapped for all processes.

    Raises:
        TrainingError: if the loss or its gradient is not a finite number. If only the gradient is not, and the loss
            scale can shrink, it does so instead, and the step is counted. Neither case changes weights.
    """
    recipe, ranks = run.recipe.optimizer, run.ranks
    part_losses = part_losses or PartLosses(run)
    rate = rate_of_step(run.recipe, run.step)
    if run.recipe.teacher and run.step == run.recipe.teacher.apart.steps:
        run.optimizer.forget()  # moments of the first stage would throw the second back
    counts = _counts_of_step(run, parts)
    run.optimizer.zero_grad()
    found = []
    for number, batch in enumerate(parts):
        run.mode.apply(run.network, is_silence=batch.is_silence)
        # Dropout is a function of the step, so that a resumed run draws the same.
        seed = np.random.SeedSequence([run.recipe.seed, run.step, batch.part])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        with ranks.syncing(part_losses, last=number == len(parts) - 1):
            part: Losses = part_losses(batch.to(run.device), counts)
            # DDP averages gradients over processes; the factor turns the mean into the sum.
            run.loss_scale.scale(part.total * ranks.count).backward()  # type: ignore[no-untyped-call]  # untyped
        found.append(part)
    run.loss_scale.unscale_(run.optimizer)  # type: ignore[arg-type]  # it reads the groups of parameters
    norm = clip_grad_norm_(run.network.parameters(), recipe.max_norm).item()
    result = _summed_up(run, found, parts, norm, rate)
    overflowed = not math.isfinite(norm)
    can_shrink = run.loss_scale.is_enabled() and run.loss_scale.get_scale() > 1
    if not math.isfinite(result.loss) or (overflowed and not can_shrink):
        raise TrainingError(f"the loss of step {run.step + 1} is {result.loss}, its gradient {norm}")
    if not overflowed:
        for group in run.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        run.optimizer.step()
        run.average.update(run.network, run.step)
    run.loss_scale.update()

    run.step += 1
    run.position = Position(parts[0].position.epoch, parts[0].position.batch + 1)
    run.audio_seconds += result.audio_seconds
    return result


def _counts_of_step(run: Run, parts: Sequence[Batch]) -> LabelCounts:
    """Count the labels of all parts of a step, in all processes."""
    own = [label_counts(batch, run.recipe.objective) for batch in parts if not batch.is_silence]
    transcripts, sequences = run.ranks.sums([sum(one.transcripts for one in own), sum(one.sequences for one in own)])
    return LabelCounts(transcripts, sequences, share=1 / run.recipe.batches.parts)


def _summed_up(run: Run, found: Sequence[Losses], parts: Sequence[Batch], norm: float, rate: float) -> StepResult:
    """Combine the results of all parts of a step, in all processes."""
    read = [batch.read_labels for batch in parts]
    counted = {
        "loss": sum(one.total.item() for one in found),
        **{name: sum(one.parts[name].item() for one in found) for name in found[0].parts},
        "audio": sum(batch.audio_seconds for batch in parts),
        "samples": sum(batch.lengths.sum().item() for batch in parts),
        "padded samples": sum(batch.waveforms.numel() for batch in parts),
        "read labels": sum(lengths.sum().item() for _, lengths in read),
        "padded labels": sum(labels.numel() for labels, _ in read),
        "skipped": sum(len(batch.skipped) for batch in parts),
        "clips": sum(len(batch.lengths) for batch in parts if not batch.is_silence),
        "labels": sum(batch.token_lengths.sum().item() for batch in parts),
    }
    of_all = dict(zip(counted, run.ranks.sums(list(counted.values())), strict=True))
    padded_labels = of_all["padded labels"]
    return StepResult(
        loss=of_all["loss"],
        losses={name: of_all[name] for name in found[0].parts},
        gradient_norm=norm,
        learning_rate=rate,
        audio_seconds=of_all["audio"],
        padding_share=round(1 - of_all["samples"] / of_all["padded samples"], 4),
        label_padding_share=round(1 - of_all["read labels"] / padded_labels, 4) if padded_labels else 0.0,
        skipped=int(of_all["skipped"]),
        clips=int(of_all["clips"]),
        labels=int(of_all["labels"]),
    )


def batch_losses(run: Run, batch: Batch, counts: LabelCounts | None = None) -> Losses:
    """Return the losses of a batch on the run's device, divided by ``counts``, or else by the batch's own labels."""
    counts = counts or label_counts(batch, run.recipe.objective)
    features, frames = _features(run, batch)
    compute = _distilled if run.teacher else _transcribed
    found = compute(run, batch, features, frames, counts)
    return found.times(0.0) if batch.is_silence else found


def _transcribed(run: Run, batch: Batch, features: Tensor, frames: Tensor, counts: LabelCounts) -> Losses:
    """Return the losses of a model that learns from transcripts."""
    network, objective = run.network, run.recipe.objective
    known = network.encoder.shortened(run.front_end.frames(batch.lengths))  # frames of the encoder, on the host
    head, weight = (network.ctc, objective.ctc) if network.ctc else (network.auxiliary_ctc, objective.auxiliary_ctc)
    weights = {"ctc": weight, "transducer": objective.transducer, "attention": 1.0}
    parts: dict[str, Tensor] = {}
    with autocast(run.device, run.recipe.precision):
        with torch.set_grad_enabled(not run.mode.frozen):
            encoded, frames = network.encoder(features, frames)
        if head and weight:
            parts["ctc"] = ctc_objective(head(encoded), frames, batch, counts)
        if network.predictor and network.joint:
            parts["transducer"] = transducer_objective(
                network.predictor,
                network.joint,
                encoded,
                known,
                batch,
                objective,
                counts,
                with_durations=_with_durations(run),
            )
        if network.attention_decoder:
            decoder = network.attention_decoder
            parts["attention"] = attention_objective(decoder, encoded, frames, batch, objective, counts)
    return Losses(torch.stack([weights[name] * loss for name, loss in parts.items()]).sum(), parts)


@torch.no_grad()
def _features(run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the augmented features of a batch, [batch, mels, frames], and the frames of each row."""
    features, frames = run.front_end(batch.waveforms, batch.lengths.to(run.device, non_blocking=True))
    masked = batch.masked_frames[:, None] | batch.masked_mels[:, :, None]
    return features.masked_fill(masked, 0.0), frames


def _distilled(run: Run, _: Batch, features: Tensor, frames: Tensor, counts: LabelCounts) -> Losses:
    """Return the losses of a student of a teacher."""
    config, teacher = run.recipe.teacher, run.teacher
    assert config, "a recipe has it"
    assert teacher, "a recipe has it"
    lesson = teacher.teach(features, frames)
    with autocast(run.device, run.recipe.precision):
        apart = run.step < config.apart.steps
        found = distillation_losses(run.network, features, frames, lesson, config, apart=apart)
    return found.times(counts.share)


def _with_durations(run: Run) -> bool:
    """Return whether a TDT learns with its durations in this step; the same in all processes."""
    random = np.random.default_rng([run.recipe.seed, run.step, 2**32])
    return bool(random.random() >= run.recipe.objective.omega)
