"""The best of a run is kept, and a run that does not get better may end."""

import json

import pytest
import torch

from models import load_model
from tests.training.small_run import TEXTS, manifest, recipe_file
from training.loop import train
from training.recipe_file import read_recipe
from training.run import Run


def new_run(folder, **changes):
    manifest(folder)
    dev = {"manifest": "manifest.jsonl", "every": 1, "patience": 2}
    recipe = recipe_file(folder, steps=12, dev=dev, **changes)
    return Run(read_recipe(recipe), folder, torch.device("cpu"))


def errors_of(*rates):
    """Count errors so that measurement after measurement has these rates."""
    rest = [rate for rate in rates for _ in TEXTS]
    return lambda reference, _: (rest.pop(0), 10)


def test_the_best_is_exported_and_the_run_ends_when_it_is_long_ago(tmp_path):
    run, lines = new_run(tmp_path), []

    train(run, word_errors=errors_of(9, 5, 6, 7, 1), report=lines.append)

    assert run.step == 3
    assert lines[-1] == "WER has not fallen for 2 measurements; it was lowest, 50.0 %, in best.nemo"
    assert load_model(tmp_path / "best.nemo").info()["layers"] == 2
    # It is that of its step, and a run that goes on knows it.
    run = new_run(tmp_path)
    run.resume()
    train(run, word_errors=None, report=lines.append)
    assert run.step == 3


def test_what_is_measured_later_and_worse_does_not_replace_the_best(tmp_path):
    kept = []
    run = new_run(tmp_path)
    run.export = lambda path: kept.append((path.name, run.step))

    train(run, word_errors=errors_of(9, 5, 5, 3, 4, 4), report=lambda _: None)

    assert kept == [("best.nemo", 0), ("best.nemo", 1), ("best.nemo", 3)]


def test_every_step_says_how_long_it_took_and_waited(tmp_path):
    run, ticks = new_run(tmp_path, batches={"seconds": 30, "buckets": 1}), iter(range(10_000))

    train(run, word_errors=None, report=lambda _: None, clock=lambda: next(ticks))

    steps = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert all(step["waited"] == 1 and step["seconds"] == 2 for step in steps)
    assert all(step["clips"] == 4 for step in steps)
    assert steps[0]["labels"] == sum(len(run.vocabulary.encode(text)) for text in TEXTS.values())
    assert steps[0]["audio_seconds"] == pytest.approx(13.7, abs=0.1)
