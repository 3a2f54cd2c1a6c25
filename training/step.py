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
    PARTS,
    LabelCounts,
    Losses,
    attention_objective,
    label_counts,
    transducer_objective,
    weighted,
)
from training.precision import autocast
from training.recipe import Recipe
from training.run import Run
from training.sampler import Position
from training.schedule import learning_rate
from training.teacher import TeacherModel


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step: the loss and its parts as in ``Losses``, and what was computed."""

    loss: float
    ctc: float | None
    transducer: float | None
    attention: float | None
    states: float | None
    posteriors: float | None
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
    by_name = [[getattr(one, name) for one in found if getattr(one, name) is not None] for name in PARTS]
    read = [batch.read_labels for batch in parts]
    counted = [
        float(torch.stack([one.total.detach() for one in found]).sum()),
        *(float(torch.stack([loss.detach() for loss in each]).sum()) if each else 0.0 for each in by_name),
        *(float(len(each)) for each in by_name),
        sum(batch.audio_seconds for batch in parts),
        float(sum(int(batch.lengths.sum()) for batch in parts)),
        float(sum(batch.waveforms.numel() for batch in parts)),
        float(sum(int(lengths.sum()) for _, lengths in read)),
        float(sum(labels.numel() for labels, _ in read)),
        float(sum(len(batch.skipped) for batch in parts)),
        float(sum(len(batch.lengths) for batch in parts if not batch.is_silence)),
        float(sum(int(batch.token_lengths.sum()) for batch in parts)),
    ]
    total, *rest = run.ranks.sums(counted)
    sums, present = rest[: len(PARTS)], rest[len(PARTS) : 2 * len(PARTS)]
    audio, samples, padded_samples, labels, padded_labels, skipped, clips, spoken = rest[2 * len(PARTS) :]
    numbers = {name: loss if there else None for name, loss, there in zip(PARTS, sums, present, strict=True)}
    return StepResult(
        loss=total,
        **numbers,
        gradient_norm=norm,
        learning_rate=rate,
        audio_seconds=audio,
        padding_share=round(1 - samples / padded_samples, 4),
        label_padding_share=round(1 - labels / padded_labels, 4) if padded_labels else 0.0,
        skipped=int(skipped),
        clips=int(clips),
        labels=int(spoken),
    )


def batch_losses(run: Run, batch: Batch, counts: LabelCounts | None = None) -> Losses:
    """Return the losses of a batch on the run's device, divided by ``counts``, or else by the batch's own labels."""
    network, objective = run.network, run.recipe.objective
    counts = counts or label_counts(batch, objective)
    features, frames = _features(run, batch)
    if run.teacher:
        found = _distilled(run, run.teacher, features, frames)
        share = counts.share
        assert found.states is not None
        assert found.posteriors is not None
        found = Losses(share * found.total, states=share * found.states, posteriors=share * found.posteriors)
        return found.zeroed() if batch.is_silence else found
    known = network.encoder.shortened(run.front_end.frames(batch.lengths))  # frames of the encoder, on the host
    with autocast(run.device, run.recipe.precision):
        with torch.set_grad_enabled(not run.mode.frozen):
            encoded, frames = network.encoder(features, frames)
        transducer = attention = None
        if network.predictor and network.joint:
            transducer = transducer_objective(
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
            attention = attention_objective(network.attention_decoder, encoded, frames, batch, objective, counts)
        ctc = network.ctc or network.auxiliary_ctc
        logits = ctc(encoded) if ctc else None
    found = weighted(logits, transducer, attention, frames, batch, objective, counts)
    return found.zeroed() if batch.is_silence else found


@torch.no_grad()
def _features(run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the augmented features of a batch, [batch, mels, frames], and the frames of each row."""
    features, frames = run.front_end(batch.waveforms, batch.lengths.to(run.device, non_blocking=True))
    masked = batch.masked_frames[:, None] | batch.masked_mels[:, :, None]
    return features.masked_fill(masked, 0.0), frames


def _distilled(run: Run, teacher: TeacherModel, features: Tensor, frames: Tensor) -> Losses:
    config = run.recipe.teacher
    assert config, "a run with a teacher has a recipe with one"
    lesson = teacher.teach(features, frames)
    with autocast(run.device, run.recipe.precision):
        apart = run.step < config.apart.steps
        return distillation_losses(run.network, features, frames, lesson, config, apart=apart)


def rate_of_step(recipe: Recipe, step: int) -> float:
    """Return the learning rate of a step; with a teacher, each of the two stages has its own."""
    optimizer, teacher = recipe.optimizer, recipe.teacher
    apart = teacher.apart.steps if teacher else 0
    if teacher and step < apart:
        return learning_rate(step, steps=apart, peak=teacher.apart.peak, warmup=optimizer.warmup, decay=0.0, final=1.0)
    return learning_rate(
        step - apart,
        steps=recipe.steps - apart,
        peak=optimizer.peak,
        warmup=optimizer.warmup,
        decay=optimizer.decay,
        final=optimizer.final,
    )


def _with_durations(run: Run) -> bool:
    """Return whether a TDT learns with its durations in this step; the same in all processes."""
    random = np.random.default_rng([run.recipe.seed, run.step, 2**32])
    return bool(random.random() >= run.recipe.objective.omega)
