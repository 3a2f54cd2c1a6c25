"""The loop: a batch, a loss, a step, and now and then a line, a measurement, a state on disk."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from training.batch import Batch
from training.errors import TrainingError
from training.evaluation import WordErrors, transcribing, word_error_rates
from training.journal import Journal
from training.loader import load
from training.objective import Guesses, Losses, attention_objective, labels_of, losses, transducer_objective
from training.precision import autocast
from training.progress import Progress
from training.run import Run
from training.sampler import Position
from training.schedule import learning_rate
from training.student import without_teacher_heads
from training.vocal_tract import stretched

# Batches in a row without one clip that can be read, after which a run ends.
_LOST_BATCHES = 10


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did.

    Attributes:
        loss: what was minimised.
        ctc: its part from transcripts, or None.
        distillation: its part from the teacher's posteriors, or None.
        hidden: its part from the frames of the teacher's encoder, or None.
        transducer: its part from transcripts by the transducer, or None.
        attention: its part from transcripts by the attention decoder, or None.
        gradient_norm: before it was cut.
        learning_rate: of the step.
    """

    loss: float
    ctc: float | None
    distillation: float | None
    hidden: float | None
    transducer: float | None
    attention: float | None
    gradient_norm: float
    learning_rate: float


def train(
    run: Run,
    *,
    word_errors: WordErrors | None,
    report: Callable[[str], None],
    minutes: float | None = None,
    stops: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Train until the recipe's last step, for so many minutes, or until told to stop; then the state is on the disk.

    Args:
        run: the run, at any step.
        word_errors: counts the errors of a transcript; needed if the recipe has a dev set.
        report: takes lines of progress.
        minutes: time after which to stop and save, to be gone on with later; None takes as long as it takes.
        stops: whether to stop after the step that was taken last.
        clock: seconds, of which only differences count.

    Raises:
        TrainingError: if nothing can be read any more, or the loss is not a finite number any more.
    """
    progress = Progress(run, clock)
    deadline = None if minutes is None else clock() + 60 * minutes
    journal = Journal(run.folder / "log.jsonl", run.step)
    batches = load(run.sampler, run.examples, run.position, run.config.encoder.subsampling_factor)
    skipped = SkippedClips(report)
    try:
        if word_errors and run.recipe.dev and run.step == 0:
            report(measure(run, journal, word_errors))
        with tqdm(total=run.recipe.steps, initial=run.step, unit="step", disable=None) as bar:
            while not run.finished and not stops() and (deadline is None or clock() < deadline):
                batch = next(batches)
                skipped.note(batch)
                result = take_step(run, batch)
                _journal_step(journal, run, batch, result)
                progress.after_step(batch.audio_seconds, result.loss)
                bar.update()
                if run.step % run.recipe.report_every == 0:
                    report(progress.line(result.learning_rate))
                if word_errors and run.recipe.dev and (run.finished or run.step % run.recipe.dev.every == 0):
                    report(measure(run, journal, word_errors))
                if run.step % run.recipe.save_every == 0:
                    run.save()
        run.save()
    finally:
        batches.close()
        journal.close()


def take_step(run: Run, batch: Batch) -> StepResult:
    """Change the weights once, and move the run on by a step and a batch.

    Raises:
        TrainingError: if the loss or its gradient is not a finite number; no weight is changed then.
    """
    recipe = run.recipe.optimizer
    rate = learning_rate(
        run.step,
        steps=run.recipe.steps,
        peak=recipe.peak,
        warmup=recipe.warmup,
        decay=recipe.decay,
        final=recipe.final,
    )
    # Dropout is a function of the step, so a resumed run draws what the run itself would have drawn.
    torch.manual_seed(int(np.random.SeedSequence([run.recipe.seed, run.step]).generate_state(1)[0]))
    run.mode.apply(run.network)
    costs = batch_losses(run, batch.to(run.device))
    run.optimizer.zero_grad()
    costs.total.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
    norm = clip_grad_norm_(run.network.parameters(), recipe.max_norm)
    if not torch.isfinite(costs.total + norm):
        raise TrainingError(f"the loss of step {run.step + 1} is {costs.total.item()}, its gradient {norm.item()}")
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.optimizer.step()
    run.average.update(run.network, run.step)

    run.step += 1
    run.position = Position(batch.position.epoch, batch.position.batch + 1)
    run.audio_seconds += batch.audio_seconds
    return StepResult(
        loss=costs.total.item(),
        ctc=_number(costs.ctc),
        distillation=_number(costs.distillation),
        hidden=_number(costs.hidden),
        transducer=_number(costs.transducer),
        attention=_number(costs.attention),
        gradient_norm=norm.item(),
        learning_rate=rate,
    )


def batch_losses(run: Run, batch: Batch) -> Losses:
    """Return what a batch, which is on the run's device, costs."""
    network, objective = run.network, run.recipe.objective
    labels = labels_of(batch, objective)
    with torch.no_grad():
        features, frames = run.front_end(batch.waveforms, batch.lengths)
        if batch.stretches is not None:
            features = stretched(features, batch.stretches, run.config.features)
        hidden = batch.hidden_frames[:, None] | batch.hidden_mels[:, :, None]
        features = features.masked_fill(hidden, 0.0)
    with autocast(run.device, run.recipe.precision):
        with torch.set_grad_enabled(not run.mode.frozen):
            encoded, frames = network.encoder(features, frames)
        guesses = Guesses(
            logits=network.ctc(encoded) if network.ctc else None,
            teacher_logits=network.teacher_head(encoded) if network.teacher_head and batch.targets else None,
            hidden=network.hidden_head(encoded) if network.hidden_head and batch.targets else None,
            transducer=transducer_objective(network.predictor, network.joint, encoded, frames, batch, objective, labels)
            if network.predictor and network.joint
            else None,
            attention=attention_objective(network.attention_decoder, encoded, frames, batch, objective, labels)
            if network.attention_decoder
            else None,
        )
    return losses(guesses, frames, batch, objective, labels)


def measure(run: Run, journal: Journal, word_errors: WordErrors) -> str:
    """Measure the averaged weights on the dev set, log it, and return a line that says so."""
    state = without_teacher_heads(run.average.state)
    model = transcribing(run.config, run.vocabulary, state, run.front_end, run.device)
    rates = word_error_rates(model, run.dev, word_errors)
    journal.write(step=run.step, wer={name: round(rate, 5) for name, rate in rates.items()})
    return f"step {run.step}: dev WER % " + ", ".join(f"{name} {100 * rate:.1f}" for name, rate in rates.items())


def _journal_step(journal: Journal, run: Run, batch: Batch, result: StepResult) -> None:
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
        padding_share=round(batch.padding_share, 4),
        **({"skipped": len(batch.skipped)} if batch.skipped else {}),
    )


class SkippedClips:
    """Tells of clips that cannot be read, of each once, and gives up where nothing can be read any more."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._told: set[str] = set()
        self._lost_in_a_row = 0

    def note(self, batch: Batch) -> None:
        """Take note of a batch.

        Raises:
            TrainingError: if no clip of the last batches could be read: then a disk is gone, and not a file.
        """
        for message in batch.skipped:
            if message not in self._told:
                self._told.add(message)
                self._report(f"skipped: {message}")
        self._lost_in_a_row = self._lost_in_a_row + 1 if batch.is_lost else 0
        if self._lost_in_a_row >= _LOST_BATCHES:
            raise TrainingError(f"no clip of {_LOST_BATCHES} batches can be read; the last: {batch.skipped[-1]}")


def _number(loss: Tensor | None) -> float | None:
    return None if loss is None else loss.item()
