"""The best of a run is kept, and a run that does not get better may end."""

import pytest

from models import load_model
from tests.training.small_run import TEXTS, finish, log, new_run


def patient(folder, **changes):
    return new_run(folder, dev={"manifest": "manifest.jsonl", "every": 1, "patience": 2}, **changes)


def errors_of(*rates):
    """Count errors so that measurement after measurement has these rates."""
    rest = [rate for rate in rates for _ in TEXTS]
    return lambda reference, _: (rest.pop(0), 10)


def test_the_best_is_exported_and_the_run_ends_when_it_is_long_ago(tmp_path):
    run = patient(tmp_path)

    lines = finish(run, word_errors=errors_of(9, 5, 6, 7, 1))

    assert run.step == 3
    assert lines[-1] == "WER has not fallen for 2 measurements; it was lowest, 50.0 %, in best.nemo"
    assert load_model(run.folder / "best.nemo").info()["layers"] == 2
    # It is that of its step, and a run that goes on knows it.
    run = patient(tmp_path)
    run.resume()
    finish(run)
    assert run.step == 3


def test_what_is_measured_later_and_worse_does_not_replace_the_best(tmp_path):
    kept = []
    run = patient(tmp_path)
    run.export = lambda path: kept.append((path.name, run.step))

    finish(run, word_errors=errors_of(9, 5, 5, 3, 4, 4))

    assert kept == [("best.nemo", 0), ("best.nemo", 1), ("best.nemo", 3)]


def test_every_step_says_how_long_it_took_and_waited(tmp_path):
    run, ticks = patient(tmp_path, batches={"seconds": 30, "buckets": 1}), iter(range(10_000))

    finish(run, clock=lambda: next(ticks))

    steps = log(run.folder)
    assert all(step["waited"] == 1 and step["seconds"] == 2 for step in steps)
    assert all(step["clips"] == 4 for step in steps)
    assert steps[0]["labels"] == sum(len(run.vocabulary.encode(text)) for text in TEXTS.values())
    assert steps[0]["audio_seconds"] == pytest.approx(13.7, abs=0.1)
