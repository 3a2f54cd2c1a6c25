"""What the benchmark of clips beside long recordings makes of a log."""

import json

import pytest

from benchmarks.beside import queue_of


def line(second, audio_seconds, queue_seconds, **fields):
    entry = {"time": f"1970-01-01T00:00:{second:02}.000+00:00", "endpoint": "transcriptions", "status": 200}
    return json.dumps(entry | {"audio_seconds": audio_seconds, "queue_seconds": queue_seconds} | fields)


def test_only_clips_that_were_answered_in_the_span_count():
    lines = [
        line(5, 4.0, 9.0),
        line(20, 4.0, 1.0),
        line(21, 15.0, 3.0),
        line(22, 3600.0, 9.0),
        line(23, 4.0, 9.0, status=503),
        "not of this log",
    ]

    row = queue_of(lines, (10.0, 30.0), batch=2.0)

    assert row["clips"] == 2
    assert row["queue_p50_s"] == 2.0
    assert row["p50_batches"] == 1.0
    assert row["p99_batches"] == pytest.approx(1.49)


def test_without_clips_in_the_span_there_are_no_percentiles():
    row = queue_of([line(5, 4.0, 9.0)], (10.0, 30.0), batch=2.0)

    assert row.pop("clips") == 0
    assert set(row.values()) == {None}
