"""What a run reports while it trains: lines of progress, its log, and measurements on the dev set."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from training.batch import Batch
from training.errors import TrainingError
from training.evaluation import WordErrors, transcribing, word_error_rates
from training.journal import BEST, Journal
from training.loggers import Logger
from training.memory import peak_bytes
from training.progress import Progress
from training.run import Run
from training.step import StepResult

# A run ends after this number of batches in a row without a usable clip.
_LOST_BATCHES = 10
_COMPILES = ", up to a few minutes, while kernels are compiled"


class Monitor:
    """Reports the steps of a run. Only the first process has a log, and measures."""

    def __init__(
        self,
        run: Run,
        report: Callable[[str], None],
        word_errors: WordErrors | None,
        loggers: Sequence[Logger],
        clock: Callable[[], float],
    ) -> None:
        """Open the log; ``word_errors``, which the dev set needs, counts the errors of a transcript.

        Raises:
            TrainingError: if the log cannot be written, or is damaged.
        """
        self._run = run
        self._report = report
        self._word_errors = word_errors
        self._first = run.step + 1
        # A run at step 0 measures again, so its log starts empty.
        steps = run.step or -1
        self._journal = Journal(run.folder / "log.jsonl", steps, loggers) if run.ranks.is_first else None
        self._rates = self._journal.measured if self._journal else []
        self._progress = Progress(run, clock)
        self._named: set[str] = set()
        self._lost_in_a_row = 0

    @property
    def wants_end(self) -> bool:
        """Whether the word error rate has not fallen within the recipe's patience."""
        patience = self._run.recipe.dev.patience if self._run.recipe.dev else None
        return bool(patience and self._rates) and self._since_lowest() >= (patience or 0)

    def _since_lowest(self) -> int:
        """Return the number of measurements since the lowest rate, of equal ones the first."""
        return len(self._rates) - 1 - self._rates.index(min(self._rates))

    def before_steps(self) -> None:
        """Measure a run that has not begun, and report that steps begin."""
        if self._run.step == 0:
            self._measure()
        if not self._run.finished:
            compiles = _COMPILES * (self._run.device.type == "cuda")
            self._report(f"step {self._first} begins; it takes longer than others{compiles}")

    def before_step(self, *parts: Batch) -> None:
        """Report the clips that cannot be used.

        Raises:
            TrainingError: if no clip can be used any more.
        """
        for batch in parts:
            self._name(batch.skipped)
            if not batch.is_silence:
                self._lost_in_a_row = 0
            # Silence without a skipped clip counts neither way.
            self._lost_in_a_row += batch.is_lost
            if batch.is_lost and self._lost_in_a_row >= _LOST_BATCHES:  # as when a disk is gone
                raise TrainingError(f"no clip of {_LOST_BATCHES} batches can be used; the last: {batch.skipped[-1]}")

    def after_step(self, result: StepResult, *, seconds: float, waited: float) -> None:
        """Log a step, the time that it took and what it waited for batches; report and measure when it is time."""
        run, recipe = self._run, self._run.recipe
        self._log(result, seconds=seconds, waited=waited)
        self._progress.after_step(result.audio_seconds, result.loss)
        if run.step == self._first:
            every = f"a line every {recipe.report_every} steps" if recipe.report_every > 1 else "a line every step"
            self._report(f"step {run.step}: loss {result.loss:.3f}, after {seconds:.1f} s; {every}")
        if run.step % recipe.report_every == 0:
            self._report(self._progress.line(result.learning_rate))
        if recipe.dev and (run.finished or run.step % recipe.dev.every == 0):
            self._measure()

    def after_steps(self) -> None:
        """If the word error rate stopped falling, which ends a run, report its lowest."""
        if self.wants_end and self._run.recipe.dev:
            lowest = f"it was lowest, {100 * min(self._rates):.1f} %, in {BEST}"
            self._report(f"WER has not fallen for {self._run.recipe.dev.patience} measurements; {lowest}")

    def close(self) -> None:
        """Close the log."""
        if self._journal:
            self._journal.close()

    def _measure(self) -> None:
        """Evaluate the averaged weights on the dev set, if there is one; log, report, and export the best.

        Raises:
            TrainingError: if no clip of it can be read.
        """
        run = self._run
        if not (self._journal and self._word_errors and run.recipe.dev):
            return
        skipped: list[str] = []
        with self._progress.paused():
            model = transcribing(run.config, run.vocabulary, run.averaged, run.front_end, run.device)
            rates = word_error_rates(model, run.dev, self._word_errors, skipped.append)
        self._name(skipped)
        rounded = {name: round(rate, 5) for name, rate in rates.items()}
        # The weights come before the line, so that a lowest rate in the log has its weights.
        if "all" in rounded:
            self._rates.append(rounded["all"])
            if not self._since_lowest():
                run.export(run.folder / BEST)
        self._journal.write(step=run.step, wer=rounded, **({"dev_skipped": len(skipped)} if skipped else {}))
        named = [f"{name} {100 * rate:.1f} %" for name, rate in rates.items()]
        # One source has the rate of all.
        shown = ", ".join(named) if len(rates.keys() - {"all"}) > 1 else "".join(named[-1:]).removeprefix("all ")
        self._report(f"step {run.step}: dev WER {shown}")

    def _log(self, result: StepResult, *, seconds: float, waited: float) -> None:
        run = self._run
        if not self._journal:
            return
        fields = asdict(result) | {"audio_seconds": round(run.audio_seconds, 3)}  # of the run so far
        fields |= fields.pop("losses")
        if not math.isfinite(result.gradient_norm):
            fields["gradient_norm"] = None  # JSON has no infinity
        if not result.skipped:
            del fields["skipped"]
        if run.recipe.precision == "float16":
            fields["loss_scale"] = run.loss_scale.get_scale()
        fields |= {"seconds": round(seconds, 4), "waited": round(waited, 4), "memory": peak_bytes(run.device)}
        self._journal.write(step=run.step, epoch=run.position.epoch, **fields)

    def _name(self, skipped: Iterable[str]) -> None:
        """Report the reasons, each once, why clips are skipped."""
        for message in skipped:
            if message not in self._named:
                self._named.add(message)
                self._report(f"skipped: {message}")
