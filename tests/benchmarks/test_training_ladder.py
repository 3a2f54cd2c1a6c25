"""Rungs that no figure follows from are refused before they are measured, and small buckets are not made faster."""

from types import SimpleNamespace

import pytest

from benchmarks import training_ladder


@pytest.mark.parametrize(("only", "message"), [("5", "a rung in float32 too"), ("6", "invalid choice: 6")])
def test_rungs_that_cannot_be_compared_are_refused(only, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["training_ladder", "manifest.jsonl", "--vocabulary", "file", "--only", only])

    with pytest.raises(SystemExit):
        training_ladder.main()

    assert message in capsys.readouterr().err


def test_a_bucket_that_does_not_fill_a_batch_counts_as_one():
    rung = object.__new__(training_ladder.MeasuredRung)
    rung.seconds = [1.0] * 45
    rung.sampler = SimpleNamespace(buckets=[(1.0, 40, 20), (2.0, 5, 10), (4.0, 0, 5)])  # edge, clips, rows
    rung.times = {0: [3.0, 5.0], 1: [1.0]}

    assert rung.clips_a_second() == pytest.approx(45 / (2 * 4.0 + 1 * 1.0))
