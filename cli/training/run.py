"""`steno train run`: train a model as a recipe says."""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING

from cli.errors import CommandError
from cli.model_options import Subparsers, torch_device
from cli.numbers import positive

if TYPE_CHECKING:
    import torch

    from training.evaluation import WordErrors
    from training.ranks import Ranks
    from training.recipe import Recipe
    from training.run import Run


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run",
        help="train a model as a recipe says",
        description="Train a model as a recipe says (docs/training.md). A run that was stopped or killed goes on with "
        "--resume as if nothing had happened.",
    )
    parser.add_argument("recipe", metavar="RECIPE", help="YAML file that says everything about the run")
    parser.add_argument("--out", metavar="DIR", help="where the run keeps its state and its log")
    ahead = parser.add_mutually_exclusive_group()
    ahead.add_argument("--check", action="store_true", help="print what would be trained on and how, and train nothing")
    ahead.add_argument(
        "--probe",
        action="store_true",
        help="find the largest useful batch of each bucket on this device, and train nothing",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in DIR, if there is one")
    parser.add_argument(
        "--minutes",
        type=positive,
        metavar="N",
        help="stop after N minutes; --resume continues",
    )
    parser.add_argument(
        "--export", metavar="FILE", help="write the weights with the lowest WER on dev, or else the last, at the end"
    )
    parser.add_argument("--tensorboard", action="store_true", help="write the log for TensorBoard too, DIR/tensorboard")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, and export if asked to."""
    # OpenMP threads that wait should sleep, not spin: beside another busy process, spinning all but stops a run.
    # PyTorch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from training.errors import RecipeError
    from training.loggers import check_loggers
    from training.ranks import local_device, process_group
    from training.recipe_file import read_recipe, with_line

    device = torch_device(args.device)
    if not (args.check or args.probe):
        if not args.out:
            raise CommandError("--out DIR is missing; the run keeps its state and its log there")
        if args.export:
            _check_export(Path(args.export))
    recipe = read_recipe(Path(args.recipe))  # downloads the checkpoints that it names, so options come first
    try:
        if args.check or args.probe:
            return _look_ahead(recipe, device, probes=args.probe)
        check_loggers(recipe.loggers, tensorboard=args.tensorboard)
        folder, device = Path(args.out), local_device(device)
        with process_group(device) as ranks:
            return _train(args, recipe, folder, device, ranks)
    except RecipeError as error:
        raise CommandError(with_line(error, Path(args.recipe))) from error


def _train(args: argparse.Namespace, recipe: "Recipe", folder: Path, device: "torch.device", ranks: "Ranks") -> int:
    """Take the steps of a run, and export it; return the exit status."""
    from training.lock import locked
    from training.loggers import open_loggers
    from training.loop import train
    from training.run import Run
    from training.snapshot import STATE

    word_errors = _word_errors() if recipe.dev else None
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) if ranks.is_first else nullcontext():
        report = _report if ranks.is_first else _report_of_others
        begun = (folder / STATE).exists()
        if begun and not args.resume:
            raise CommandError(f"{folder} holds a run; --resume continues it")
        training = Run(recipe, folder, device, ranks)
        if begun:
            training.resume()
        loggers = []
        if ranks.is_first:
            _describe(training)
            if training.finished:
                report("no step is left; a larger number of steps in the recipe makes the run longer")
            loggers = open_loggers(recipe.loggers, folder, training.step, tensorboard=args.tensorboard)
        signals: list[int] = []
        with _recording_signals(signals):
            is_over = train(
                training,
                word_errors=word_errors,
                report=report,
                minutes=args.minutes,
                stops=lambda: bool(signals),
                loggers=loggers,
            )
        if signals or not is_over:
            report(f"stopped at step {training.step}; its state is saved, --resume continues")
        if signals:
            return 128 + signals[0]
        if args.export and ranks.is_first:
            _export(training, folder, Path(args.export))
    return 0


def _export(training: "Run", folder: Path, export: Path) -> None:
    """Write the averaged weights with the lowest word error rate on dev or, without a dev set, the last ones."""
    from training.journal import BEST, best_of

    best = best_of(folder / "log.jsonl") if training.recipe.dev else None
    if best is None:
        training.export(export)
        _report(f"{export}: the averaged weights of step {training.step}, the last")
        return
    shutil.copyfile(folder / BEST, export)
    lowest = f"with the lowest WER on dev, {100 * best.rate:.2f} %" + ": training did not lower it" * (best.step == 0)
    _report(f"{export}: the averaged weights of step {best.step}, {lowest}")


def _look_ahead(recipe: "Recipe", device: "torch.device", *, probes: bool) -> int:
    """Print what would be trained on."""
    from models.device.memory import leave_room
    from training import forecast
    from training.probe import measured, probe, table
    from training.run import Run

    with TemporaryDirectory() as empty:  # for the index of takes
        training = Run(recipe, Path(empty), device)
    _describe(training)
    if training.teacher and probes:
        raise CommandError("--probe finds batches of clips; with a teacher, batches.seconds is all that there is")
    if not training.teacher:
        _report(forecast.whole_run(training.sampler, training.takes.seconds, recipe.steps))
    _report(forecast.model_memory(training.network, training.optimizer))
    lines = [] if training.teacher else forecast.buckets(training.sampler)
    if probes:
        try:
            leave_room(device)
            found = probe(training.sampler.buckets, partial(measured, training), by_memory=device.type == "cuda")
        except MemoryError as error:
            raise CommandError(f"{error} does not fit this device") from error
        lines = table(found, recipe.optimizer)
    for line in lines:
        _report(line)
    return 0


def _describe(training: "Run") -> None:
    """Print the size of a run's model, and what it is trained on."""
    _report(f"{training.parameters:,} parameters, step {training.step} of {training.recipe.steps}")
    for line in training.survey:
        _report(line)


def _check_export(path: Path) -> None:
    """Refuse an export path that cannot be written, before hours are spent on training."""
    if not path.parent.is_dir():
        raise CommandError(f"{path}: No such file or directory")
    if path.is_dir():
        raise CommandError(f"{path}: Is a directory")
    if not os.access(path.parent, os.W_OK):
        raise CommandError(f"{path}: Permission denied")


@contextmanager
def _recording_signals(received: list[int]) -> Iterator[None]:
    """Add SIGINT and SIGTERM to ``received``, so that a run ends between two steps; a second one ends it at once."""
    caught = (signal.SIGINT, signal.SIGTERM)

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)
        for each in caught:
            signal.signal(each, before[each])

    before = {each: signal.signal(each, note) for each in caught}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _report(line: str) -> None:
    """Print a line above the progress bar, and flush it: readers of a long log should not wait for a buffer."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


def _report_of_others(line: str) -> None:
    """In processes other than the first, print only the clips that they cannot read, which the first does not know."""
    if line.startswith("skipped: "):
        _report(line)


def _word_errors() -> "WordErrors":
    """Return a function that counts a transcript's errors and words as `steno eval` does."""
    from cli.scoring import Scorer

    scorer = Scorer()

    def count(reference: str, transcript: str) -> tuple[int, int]:
        score = scorer.score(reference, transcript, seconds=0.0)
        return score.errors, score.words

    return count
