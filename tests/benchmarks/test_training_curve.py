"""The curve of a run counts the minutes of its steps, and weighs losses by labels."""

import json

import pytest

from benchmarks.training_curve import curve


def test_minutes_are_those_of_steps(tmp_path):
    step = {"clips": 2, "padding_share": 0.5}
    rows = [
        {"step": 0, "wer": {"all": 1.0}},
        step | {"seconds": 30.0, "loss": 4.0, "labels": 10, "audio_seconds": 5.0},
        step | {"seconds": 50.0, "loss": 1.0, "labels": 20, "audio_seconds": 10.0},
        {"step": 2, "wer": {"all": 0.5}},
        step | {"seconds": 45.0, "loss": 0.5, "labels": 10, "audio_seconds": 18.0},
        {"step": 3, "wer": {"all": 0.25}},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    found = curve(log, 1.0)

    assert found["loss"] == {1.0: pytest.approx((4 * 10 + 20) / 30), 2.0: 0.5}
    assert found["wer"] == {1.0: 1.0, 2.0: 0.5}
    assert (found["steps"], found["clips"], found["padding"]) == (3, 6, pytest.approx(0.5))
