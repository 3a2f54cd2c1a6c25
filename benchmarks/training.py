"""Training steps of a recipe's student on noise: seconds of audio per second, without reading or augmenting any.

Transcripts are random labels, as many as in English. To compare options, run the command in turns.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import torch

from benchmarks.environment import describe
from models.features import LogMelFeatures
from training.batch import Batch
from training.ema import WeightAverage
from training.loop import batch_losses
from training.mode import TrainingMode
from training.optimizer import new_optimizer
from training.recipe import Objective, Recipe, Transducer
from training.recipe_file import read_recipe
from training.sampler import Position
from training.student import FRONT_END, new_network, student_config

if TYPE_CHECKING:
    from training.run import Run

_LABELS = 384
_LABELS_PER_SECOND = 6
_WIDTH = 320


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="training/recipes/english.yaml")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="default: the recipe's")
    parser.add_argument(
        "--transducer", choices=("tdt", "rnnt"), help="in addition to CTC; half as wide as in released models"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a clip")
    parser.add_argument("--repeats", type=int, default=5, help="measured steps; the median counts")
    args = parser.parse_args()

    recipe, device = read_recipe(Path(args.recipe)), torch.device(args.device)
    assert recipe.student, "steps are those of a student with random weights"
    if args.transducer:
        durations = (0, 1, 2, 3, 4) if args.transducer == "tdt" else None
        transducer = Transducer(predictor_width=_WIDTH, joint_width=_WIDTH, durations=durations)
        recipe = replace(recipe, student=replace(recipe.student, transducer=transducer))
    precision = args.precision or recipe.precision
    batch = _noise(max(1, int(recipe.batches.seconds / args.seconds)), args.seconds).to(device)
    times = _measure(recipe, precision, batch, device, args.repeats)
    row = {"precision": precision, "transducer": args.transducer, "rows": len(batch.lengths), "seconds": args.seconds}
    row |= {"median_s": times[len(times) // 2], "rtfx": batch.audio_seconds / times[len(times) // 2]}
    print(json.dumps({"benchmark": "training", **describe(device), **row}))


def _noise(rows: int, seconds: float) -> Batch:
    random = torch.Generator().manual_seed(0)
    samples = int(seconds * FRONT_END.sample_rate)
    labels = int(seconds * _LABELS_PER_SECOND)
    return Batch(
        position=Position(),
        waveforms=0.1 * torch.randn(rows, samples, generator=random),
        lengths=torch.full((rows,), samples),
        hidden_frames=torch.zeros(rows, samples // FRONT_END.hop, dtype=torch.bool),
        hidden_mels=torch.zeros(rows, FRONT_END.mels, dtype=torch.bool),
        stretches=None,
        tokens=torch.randint(_LABELS, (rows, labels), generator=random),
        token_lengths=torch.full((rows,), labels),
        sequences=torch.zeros(rows, 0, dtype=torch.int64),
        sequence_lengths=torch.zeros(rows, dtype=torch.int64),
        targets=None,
        audio_seconds=rows * seconds,
    )


def _measure(recipe: Recipe, precision: str, batch: Batch, device: torch.device, repeats: int) -> list[float]:
    """Return the seconds of each step, ascending, after two unmeasured ones."""
    assert recipe.student, "checked before"
    config = student_config(recipe.student, _LABELS)
    network = new_network(config, recipe.dropout, seed=0).to(device)
    optimizer, average = new_optimizer(network, recipe.optimizer), WeightAverage(network, recipe.optimizer.ema)
    run = SimpleNamespace(
        network=network.train(),
        front_end=LogMelFeatures(FRONT_END).to(device),
        device=device,
        config=config,
        mode=TrainingMode(recipe),
        recipe=SimpleNamespace(precision=precision, objective=Objective(), seed=0),
        step=0,
    )
    times = []
    for step in range(repeats + 2):
        began = time.perf_counter()
        optimizer.zero_grad()
        costs = batch_losses(cast("Run", run), batch)
        costs.total.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.optimizer.max_norm).item()
        optimizer.step()
        average.update(network, step)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return sorted(times[2:])


if __name__ == "__main__":
    main()
