"""Tuning a released model at a small learning rate makes nothing worse."""

import json

import pytest
import torch

from cli.scoring import Scorer
from tests.training.small_run import recipe_file
from training.loop import train
from training.recipe_file import read_recipe
from training.run import Run


@pytest.mark.long
@pytest.mark.speech
@pytest.mark.teacher
def test_twenty_steps_leave_a_released_model_as_good_as_it_was(tmp_path, speech_dir, teacher):
    lines = map(json.loads, (speech_dir / "manifest.jsonl").read_text(encoding="utf-8").splitlines())
    rows = [row for row in lines if row["source"] == "librispeech" and row["duration"] < 8][:30]
    rows = [row | {"audio": str(speech_dir / row["audio"])} for row in rows]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = recipe_file(
        tmp_path,
        steps=20,
        student=None,
        vocabulary=None,
        initial=str(teacher),
        batches={"seconds": 30, "buckets": 2},
        dropout=0.0,
        augmentation={},
        optimizer={"peak": 1e-5, "warmup": 0, "ema": 0.0},
        dev={"manifest": "manifest.jsonl", "every": 20},
    )
    run, scorer = Run(read_recipe(recipe), tmp_path, torch.device("cpu")), Scorer()

    def count(reference, transcript):
        score = scorer.score(reference, transcript, seconds=0.0)
        return score.errors, score.words

    train(run, word_errors=count, report=print)

    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    before, after = (line["wer"]["all"] for line in log if "wer" in line)
    assert after <= before + 0.005
