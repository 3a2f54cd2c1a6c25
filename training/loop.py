"""The training loop: load a batch, compute the loss, take a step; at intervals report, evaluate and save."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from training.batch import Batch
from training.best import Best
from training.board import Board
from training.errors import TrainingError
from training.evaluation import WordErrors, transcribing, word_error_rates
from training.journal import Journal
from training.loader import load
from training.memory import forget_peak, peak_bytes
from training.objective import (
    Guesses,
    Labels,
    Losses,
    attention_objective,
    labels_of,
    losses,
    transducer_objective,
    without_weight,
)
from training.precision import autocast
from training.progress import Progress
from training.run import Run
from training.sampler import Position
from training.schedule import learning_rate
from training.student import without_teacher_heads
from training.vocal_tract import stretched

# A run ends after this number of batches in a row without a readable clip.
_LOST_BATCHES = 10
# On a GPU.
_COMPILES = ", up to some minutes, while kernels are compiled"
# The averaged weights at the lowest word error rate, in the run's folder.
BEST = "best.nemo"


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step.

    Attributes:
        loss: the loss.
        ctc: its part from transcripts, or None.
        distillation: its part from the teacher's posteriors, or None.
        hidden: its part from the frames of the teacher's encoder, or None.
        transducer: its part from transcripts by the transducer, or None.
        attention: its part from transcripts by the attention decoder, or None.
        gradient_norm: the gradient's norm before clipping.
        learning_rate: its learning rate.
        audio_seconds: audio in it.
        padding_share: share of padding in its audio.
        label_padding_share: share of padding in the labels that a decoder reads.
        skipped: number of clips that could not be read.
        clips: number of clips that were used.
        labels: number of labels of their transcripts.
    """

    loss: float
    ctc: float | None
    distillation: float | None
    hidden: float | None
    transducer: float | None
    attention: float | None
    gradient_norm: float
    learning_rate: float
    audio_seconds: float
    padding_share: float
    label_padding_share: float
    skipped: int
    clips: int
    labels: int


def train(
    run: Run,
    *,
    word_errors: WordErrors | None,
    report: Callable[[str], None],
    minutes: float | None = None,
    stops: Callable[[], bool] = lambda: False,
    board: Board | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Train until the recipe's last step, for ``minutes``, or until ``stops``; then save the state.

    Args:
        run: the run, at any step.
        word_errors: counts the errors of a transcript; needed if the recipe has a dev set.
        report: gets lines of progress.
        minutes: time after which to save and stop; None has no limit.
        stops: whether to stop after the current step.
        board: shows the log as well.
        clock: monotonic seconds.

    Raises:
        TrainingError: if no clip can be read any more, or the loss is not a finite number.
    """
    progress = Progress(run, clock)
    deadline = None if minutes is None else clock() + 60 * minutes
    # A run at its first step measures again, even if its log has that already.
    journal = Journal(run.folder / "log.jsonl", run.step or -1, board) if run.ranks.is_first else None
    batches = load(run.sampler, run.examples, run.position, run.config.encoder.subsampling_factor, run.own_parts)
    skipped = SkippedClips(report)
    costs = run.ranks.together(PartCosts(run), some_unused=run.network.teacher_head is not None)

    best = Best(run.recipe.dev.patience if run.recipe.dev else None, journal.measured if journal else [])

    def is_over() -> bool:
        return run.ranks.any(here=best.is_long_ago or stops() or (deadline is not None and clock() >= deadline))

    def watch(word_errors: WordErrors) -> None:
        if journal and (line := measure(run, journal, word_errors, best)):
            report(line)

    try:
        if word_errors and run.recipe.dev and run.step == 0:
            watch(word_errors)
        first = run.step + 1
        if not run.finished:
            report(f"step {first} begins; it takes longer than others" + _COMPILES * (run.device.type == "cuda"))
        with tqdm(total=run.recipe.steps, initial=run.step, unit="step", disable=None) as bar:
            while not run.finished and not is_over():
                began = clock()
                forget_peak(run.device)
                parts = [next(batches) for _ in run.own_parts]
                loaded = clock()
                for batch in parts:
                    skipped.note(batch)
                result = take_step(run, *parts, costs=costs)
                if journal:
                    _journal_step(journal, run, result, seconds=clock() - began, waited=loaded - began)
                progress.after_step(result.audio_seconds, result.loss)
                bar.update()
                if run.step == first:
                    report(f"step {run.step}: loss {result.loss:.3f}, after {clock() - began:.1f} s; {_later(run)}")
                if run.step % run.recipe.report_every == 0:
                    report(progress.line(result.learning_rate))
                if word_errors and run.recipe.dev and (run.finished or run.step % run.recipe.dev.every == 0):
                    watch(word_errors)
                if run.step % run.recipe.save_every == 0:
                    run.save()
        run.save()
        if best.is_long_ago and best.rate is not None and run.recipe.dev:
            lowest = f"it was lowest, {100 * best.rate:.1f} %, in {BEST}"
            report(f"WER has not fallen for {run.recipe.dev.patience} measurements; {lowest}")
    finally:
        batches.close()
        if journal:
            journal.close()


def _later(run: Run) -> str:
    """Return a line that says how often the log has a line."""
    every = run.recipe.report_every
    return f"a line every {every} steps" if every > 1 else "a line every step"


class PartCosts(nn.Module):
    """The loss of a part of a step, as the module whose gradients processes average."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.network = run.network
        self._run = run

    def forward(self, batch: Batch, labels: Labels) -> Losses:
        """Return the losses of a batch, per label of the whole step."""
        return batch_losses(self._run, batch, labels)


def take_step(run: Run, *parts: Batch, costs: nn.Module | None = None) -> StepResult:
    """Take a training step.

    Args:
        run: the run.
        parts: this process's parts of the step.
        costs: ``PartCosts`` of the run, wrapped for all processes; None for a single process.

    Raises:
        TrainingError: if the loss or its gradient is not a finite number; weights do not change then. If the loss is
            scaled, the scale is reduced instead, and the step changes nothing.
    """
    recipe, ranks = run.recipe.optimizer, run.ranks
    costs = costs or PartCosts(run)
    rate = learning_rate(
        run.step,
        steps=run.recipe.steps,
        peak=recipe.peak,
        warmup=recipe.warmup,
        decay=recipe.decay,
        final=recipe.final,
    )
    run.mode.apply(run.network)
    labels = _labels_of_step(run, parts)
    run.optimizer.zero_grad()
    found = []
    for number, batch in enumerate(parts):
        # Dropout is a function of the step, so that a resumed run draws the same.
        seed = np.random.SeedSequence([run.recipe.seed, run.step, batch.part])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        with ranks.syncing(costs, last=number == len(parts) - 1):
            part: Losses = costs(batch.to(run.device), labels)
            # DDP averages gradients over processes; the factor turns the mean into the sum.
            (part.total * (run.loss_scale.value * ranks.count)).backward()  # type: ignore[no-untyped-call]  # untyped
        found.append(part)
    run.loss_scale.unscale(run.network.parameters())
    norm = clip_grad_norm_(run.network.parameters(), recipe.max_norm).item()
    result = _summed_up(run, found, parts, norm, rate)
    overflowed = not math.isfinite(norm)
    if not math.isfinite(result.loss) or (overflowed and not run.loss_scale.can_shrink):
        raise TrainingError(f"the loss of step {run.step + 1} is {result.loss}, its gradient {norm}")
    if not overflowed:
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        run.optimizer.step()
        run.average.update(run.network, run.step)
    run.loss_scale.after_step(overflowed=overflowed)

    run.step += 1
    run.position = Position(parts[0].position.epoch, parts[0].position.batch + 1)
    run.audio_seconds += result.audio_seconds
    return result


def _labels_of_step(run: Run, parts: Sequence[Batch]) -> Labels:
    """Count the labels of all parts of a step, in all processes."""
    own = [labels_of(batch, run.recipe.objective) for batch in parts if not batch.is_silence]
    counts = [sum(one.transcripts for one in own), sum(one.sequences for one in own)]
    transcripts, sequences = run.ranks.sums(counts)
    return Labels(transcripts, sequences, share=1 / run.recipe.batches.parts)


def _summed_up(run: Run, found: Sequence[Losses], parts: Sequence[Batch], norm: float, rate: float) -> StepResult:
    """Combine the results of all parts of a step, in all processes."""
    names = ("ctc", "distillation", "hidden", "transducer", "attention")
    costs = [[getattr(one, name) for one in found if getattr(one, name) is not None] for name in names]
    read = [batch.read_labels for batch in parts]
    counted = [
        float(torch.stack([one.total.detach() for one in found]).sum()),
        *(float(torch.stack([cost.detach() for cost in each]).sum()) if each else 0.0 for each in costs),
        *(float(len(each)) for each in costs),
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
    sums, present = rest[: len(names)], rest[len(names) : 2 * len(names)]
    audio, samples, padded_samples, labels, padded_labels, skipped, clips, spoken = rest[2 * len(names) :]
    numbers = {name: cost if there else None for name, cost, there in zip(names, sums, present, strict=True)}
    return StepResult(
        loss=total,
        **numbers,
        gradient_norm=norm,
        learning_rate=rate,
        audio_seconds=audio,
        padding_share=1 - samples / padded_samples,
        label_padding_share=1 - labels / padded_labels if padded_labels else 0.0,
        skipped=int(skipped),
        clips=int(clips),
        labels=int(spoken),
    )


def batch_losses(run: Run, batch: Batch, labels: Labels | None = None) -> Losses:
    """Return the losses of a batch on the run's device.

    Args:
        run: the run.
        batch: the batch.
        labels: the numbers of labels that losses are divided by; None: those of the batch.
    """
    network, objective = run.network, run.recipe.objective
    labels = labels or labels_of(batch, objective)
    with torch.no_grad():
        features, frames = run.front_end(batch.waveforms, batch.lengths)
        if batch.stretches is not None:
            features = stretched(features, batch.stretches, run.config.features)
        hidden = batch.hidden_frames[:, None] | batch.hidden_mels[:, :, None]
        features = features.masked_fill(hidden, 0.0)
    with autocast(run.device, run.recipe.precision):
        with torch.set_grad_enabled(not run.mode.frozen):
            encoded, frames = network.encoder(features, frames)
        transducer = attention = None
        if network.predictor and network.joint:
            transducer = transducer_objective(
                network.predictor,
                network.joint,
                encoded,
                frames,
                batch,
                objective,
                labels,
                with_durations=_with_durations(run),
            )
        if network.attention_decoder:
            attention = attention_objective(network.attention_decoder, encoded, frames, batch, objective, labels)
        guesses = Guesses(
            logits=network.ctc(encoded) if network.ctc else None,
            teacher_logits=network.teacher_head(encoded) if network.teacher_head and batch.targets else None,
            hidden=network.hidden_head(encoded) if network.hidden_head and batch.targets else None,
            transducer=transducer,
            attention=attention,
        )
    costs = losses(guesses, frames, batch, objective, labels)
    return without_weight(costs) if batch.is_silence else costs


def _with_durations(run: Run) -> bool:
    """Return whether a TDT learns with its durations in this step; the same in all processes."""
    random = np.random.default_rng([run.recipe.seed, run.step, 2**32])
    return bool(random.random() >= run.recipe.objective.omega)


def measure(run: Run, journal: Journal, word_errors: WordErrors, best: Best) -> str:
    """Evaluate the averaged weights on the dev set, log the result, and return a line about it; export the best."""
    state = without_teacher_heads(run.average.state)
    model = transcribing(run.config, run.vocabulary, state, run.front_end, run.device)
    rates = word_error_rates(model, run.dev, word_errors)
    rounded = {name: round(rate, 5) for name, rate in rates.items()}
    # The weights come before the line: a run that is killed between them measures again.
    if "all" in rounded and best.note(rounded["all"]):
        run.export(run.folder / BEST)
    journal.write(step=run.step, wer=rounded)
    return f"step {run.step}: dev WER % " + ", ".join(f"{name} {100 * rate:.1f}" for name, rate in rates.items())


def _journal_step(journal: Journal, run: Run, result: StepResult, *, seconds: float, waited: float) -> None:
    journal.write(
        step=run.step,
        epoch=run.position.epoch,
        loss=result.loss,
        ctc=result.ctc,
        distillation=result.distillation,
        hidden=result.hidden,
        transducer=result.transducer,
        attention=result.attention,
        gradient_norm=result.gradient_norm,
        learning_rate=result.learning_rate,
        audio_seconds=round(run.audio_seconds, 3),
        padding_share=round(result.padding_share, 4),
        label_padding_share=round(result.label_padding_share, 4),
        clips=result.clips,
        labels=result.labels,
        seconds=round(seconds, 4),
        waited=round(waited, 4),
        memory=peak_bytes(run.device),
        **({"skipped": result.skipped} if result.skipped else {}),
        **({"loss_scale": run.loss_scale.value} if run.recipe.precision == "float16" else {}),
    )


class SkippedClips:
    """Reports each clip that cannot be read once, and fails if no clip can be read any more."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[str] = set()
        self._lost_in_a_row = 0

    def note(self, batch: Batch) -> None:
        """Report the skipped clips of a batch.

        Raises:
            TrainingError: if no clip of the last batches could be read, as when a disk is gone.
        """
        for message in batch.skipped:
            if message not in self._reported:
                self._reported.add(message)
                self._report(f"skipped: {message}")
        self._lost_in_a_row = self._lost_in_a_row + 1 if batch.is_lost else 0
        if self._lost_in_a_row >= _LOST_BATCHES:
            raise TrainingError(f"no clip of {_LOST_BATCHES} batches can be read; the last: {batch.skipped[-1]}")
