"""Tuning a released model at a small learning rate makes nothing worse."""

import json

import pytest

from cli.scoring import Scorer
from tests.training.small_run import finish, log, new_run


@pytest.mark.long
@pytest.mark.speech
@pytest.mark.teacher
def test_twenty_steps_leave_a_released_model_as_good_as_it_was(tmp_path, speech_dir, teacher):
    lines = map(json.loads, (speech_dir / "manifest.jsonl").read_text(encoding="utf-8").splitlines())
    rows = [row for row in lines if row["source"] == "librispeech" and row["duration"] < 8][:30]
    rows = [row | {"audio": str(speech_dir / row["audio"])} for row in rows]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = new_run(
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
    scorer = Scorer()

    def count(reference, transcript):
        score = scorer.score(reference, transcript, seconds=0.0)
        return score.errors, score.words

    finish(run, word_errors=count)

    before, after = (line["wer"]["all"] for line in log(run.folder) if "wer" in line)
    assert after <= before + 0.005
