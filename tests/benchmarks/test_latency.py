"""Rows of the benchmark of latency say what they were measured with."""

import sys

import pytest

from benchmarks.latency import main


def test_rows_of_noise_are_not_continued_with_a_recording(monkeypatch, tmp_path):
    options = ["latency", "--model", "bundled", "--seconds", "0.5", "--batch", "1", "--repeats", "1"]
    options += ["--rows", str(tmp_path / "rows.jsonl")]
    monkeypatch.setattr(sys, "argv", options)
    main()
    monkeypatch.setattr(sys, "argv", [*options, "--audio", "samples/austen.flac"])

    with pytest.raises(ValueError, match="rows of another run"):
        main()
