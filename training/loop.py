"""The training loop: load the parts of a step, take the step, report it, and save the state at intervals."""

import time
from collections.abc import Callable, Sequence

from tqdm import tqdm

from training.evaluation import WordErrors
from training.loggers import Logger
from training.memory import forget_peak
from training.monitor import Monitor
from training.run import Run
from training.step import PartLosses, take_step


def train(
    run: Run,
    *,
    word_errors: WordErrors | None,
    report: Callable[[str], None],
    minutes: float | None = None,
    stops: Callable[[], bool] = lambda: False,
    loggers: Sequence[Logger] = (),
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Train until the last step, or until ``minutes`` are over, ``stops`` says so or WER stops falling; save the state.

    Args:
        run: the run, at any step.
        word_errors: counts the errors of a transcript; None: the recipe's dev set is not evaluated.
        report: gets lines of progress.
        minutes: time after which to stop; None has no limit.
        stops: returns whether to stop after the current step.
        loggers: programs that get the log too.
        clock: monotonic seconds.

    Returns:
        Whether the run is over: its last step is done, or WER stopped falling.

    Raises:
        TrainingError: if no clip can be used any more, or none of the dev set can be read; if the loss or its gradient
            is not a finite number; if the state, the log or the best weights cannot be written.
    """
    deadline = None if minutes is None else clock() + 60 * minutes
    monitor = Monitor(run, report, word_errors, loggers, clock)
    batches = run.batches()
    part_losses = run.ranks.together(PartLosses(run))

    def is_over() -> bool:
        ends_here = monitor.wants_end or stops() or (deadline is not None and clock() >= deadline)
        return run.ranks.any(here=ends_here)

    saved: int | None = None
    try:
        monitor.before_steps()
        with tqdm(total=run.recipe.steps, initial=run.step, unit="step", disable=None) as bar:
            while not run.finished and not is_over():
                began = clock()
                forget_peak(run.device)
                parts = [next(batches) for _ in run.own_parts]
                loaded = clock()
                monitor.before_step(*parts)
                result = take_step(run, *parts, part_losses=part_losses)
                monitor.after_step(result, seconds=clock() - began, waited=loaded - began)
                bar.update()
                if run.step % run.recipe.save_every == 0:
                    run.save()
                    saved = run.step
        if run.step != saved:
            run.save()
        monitor.after_steps()
        return run.finished or run.ranks.any(here=monitor.wants_end)
    finally:
        batches.close()
        monitor.close()
