"""Speed of training steps on noise, by batch and precision: clips and seconds of audio per second.

Transcripts are random labels, as many a second as in English. A step is forward, backward, the clipped gradient, the
optimizer and the average. Precisions are compared in turns, as multiples of the first one. The model is the student of
a recipe, or one of the published shapes with CTC; `--transducer` adds one to either, but not to the Jasper.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m benchmarks training ...

has such a batch in each process, averages gradients over all, and counts the clips of all; `weak_scaling` does so with
several numbers of processes.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import torch

from benchmarks.environment import describe
from benchmarks.random_model import SHAPES, published_config
from benchmarks.rows import Rows, add_rows_option
from models.config import ModelConfig
from models.features import LogMelFeatures
from training.batch import Batch
from training.buckets import Bucket
from training.ema import WeightAverage
from training.memory import forget_peak, peak_bytes
from training.mode import TrainingMode
from training.objective import LabelCounts, Losses
from training.optimizer import new_optimizer
from training.precision import set_products
from training.probe import noise
from training.ranks import Ranks, local_device, process_group
from training.recipe import Objective, Precision, Recipe
from training.recipe_file import read_recipe
from training.recipe_shapes import Transducer
from training.step import PartLosses
from training.student import StudentNetwork, student_config

if TYPE_CHECKING:
    from training.run import Run

_LABELS = 384
_LABELS_PER_SECOND = 6
_WIDTH = 320
_GIGA = 1e9


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--recipe", default="training/recipes/english.yaml", help="whose student and optimizer are used"
    )
    parser.add_argument("--shape", choices=SHAPES, help="a published shape instead of the recipe's student")
    parser.add_argument("--transducer", choices=("tdt", "rnnt"), help="beside CTC; of a student half as wide as usual")
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16", "float16"), nargs="+")
    parser.add_argument(
        "--batch", type=int, nargs="+", help="clips; what the recipe's seconds hold where none is given"
    )
    parser.add_argument("--seconds", type=float, nargs="+", default=[8.0], help="lengths of a clip")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5, help="measured steps; the median counts")
    parser.add_argument(
        "--processor-time", action="store_true", help="of this process, which depends less on other load than the clock"
    )
    parser.add_argument("--pin", action="store_true", help="keep each process on a core of its own, with one thread")
    add_rows_option(parser)
    args = parser.parse_args()
    if args.pin:
        _pin()
    recipe, device = read_recipe(Path(args.recipe)), local_device(torch.device(args.device))
    precisions: list[Precision] = args.precision or [recipe.precision]
    with process_group(device) as ranks:
        options = {
            key: value for key, value in vars(args).items() if key not in ("rows", "batch", "device", "precision")
        }
        options |= {"precision": precisions, "ranks": ranks.count}
        rows = Rows("training", {**options, **describe(device)}, args.rows if ranks.is_first else None)
        cells = [
            (seconds, batch)
            for seconds in args.seconds
            for batch in args.batch or [max(1, int(recipe.batches.seconds / seconds))]
        ]
        missing = rows.missing(cells)
        for seconds, batch in cells:
            if ranks.any(here=ranks.is_first and (seconds, batch) in missing):  # only the first knows the file
                rows.add((seconds, batch), *_measure(args, recipe, precisions, seconds, batch, device, ranks))
        if ranks.is_first:
            _print(rows)


def _pin() -> None:
    """Keep this process on one core. More processes than cores share them."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("LOCAL_RANK", "0")) % len(cores)]})
    torch.set_num_threads(1)


def _print(rows: Rows) -> None:
    print(
        f"{'seconds':>7} {'batch':>6} {'precision':>10} {'step ms':>9} {'clips/s':>9} {'RTFx':>8} "
        f"{'times':>6} {'GB':>6}"
    )
    for row in rows:
        print(
            f"{row['seconds']:>7g} {row['batch']:>6} {row['precision']:>10} {1000 * row['median_s']:>9.1f} "
            f"{row['clips_a_second']:>9.2f} {row['rtfx']:>8.1f} {row['times']:>6.2f} {row['memory_gb']:>6.2f}"
        )
    print(rows.line())


def _config(args: argparse.Namespace, recipe: Recipe) -> ModelConfig:
    if args.shape:
        config = published_config(args.shape, args.transducer or "rnnt")
        return config if args.transducer or not config.transducer else replace(config, transducer=None)
    assert recipe.student, "steps are those of a student with random weights"
    student = recipe.student
    if args.transducer:
        durations = (0, 1, 2, 3, 4) if args.transducer == "tdt" else None
        student = replace(
            student, transducer=Transducer(predictor_width=_WIDTH, joint_width=_WIDTH, durations=durations)
        )
    return student_config(student, _LABELS)


def _measure(
    args: argparse.Namespace,
    recipe: Recipe,
    precisions: list[Precision],
    seconds: float,
    rows: int,
    device: torch.device,
    ranks: Ranks,
) -> list[dict[str, object]]:
    """Return a row for each precision, of steps in turns; the first step of each is a warm-up."""
    config = _config(args, recipe)
    bucket = Bucket(seconds, int(seconds * _LABELS_PER_SECOND))
    batch = noise(config, bucket, rows).to(device)
    step = _step(config, recipe, batch, device, ranks)
    clock = time.process_time if args.processor_time else time.perf_counter
    times: list[list[float]] = [[] for _ in precisions]
    peaks = [0] * len(precisions)
    for number in range(args.repeats + 1):
        for place, precision in enumerate(precisions):
            forget_peak(device)
            ranks.sums([0.0])  # all begin together
            began = clock()
            step(precision)
            times[place] += [clock() - began] if number else []
            peaks[place] = peak_bytes(device)
    medians = [statistics.median(one) for one in times]
    clips = rows * ranks.count
    return [
        {
            "seconds": seconds,
            "batch": rows,
            "precision": precision,
            "median_s": median,
            "clips_a_second": clips / median,
            "rtfx": clips * seconds / median,
            "times": statistics.median(first / own for first, own in zip(times[0], times[place], strict=True)),
            "memory_gb": peaks[place] / _GIGA,
        }
        for place, (precision, median) in enumerate(zip(precisions, medians, strict=True))
    ]


def _step(
    config: ModelConfig, recipe: Recipe, batch: Batch, device: torch.device, ranks: Ranks
) -> Callable[[Precision], None]:
    """Return a function that takes a step of a new network, whose weights are float32 in each precision."""
    network = StudentNetwork(config, recipe.dropout, seed=0).to(device)
    optimizer, average = new_optimizer(network, recipe.optimizer), WeightAverage(network, recipe.optimizer.ema)
    run = SimpleNamespace(
        network=network.train(),
        front_end=LogMelFeatures(config.features).to(device),
        device=device,
        config=config,
        mode=TrainingMode(network, recipe),
        recipe=SimpleNamespace(precision="float32", objective=Objective(), seed=0),
        step=0,
        teacher=None,
    )
    part_losses = ranks.together(PartLosses(cast("Run", run)))
    spoken = float(batch.token_lengths.sum())

    def step(precision: Precision) -> None:
        run.recipe.precision = precision
        set_products(precision)
        optimizer.zero_grad()
        found: Losses = part_losses(batch, LabelCounts(spoken, 0.0))
        found.total.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.optimizer.max_norm).item()
        optimizer.step()
        average.update(network, 0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return step


if __name__ == "__main__":
    main()
