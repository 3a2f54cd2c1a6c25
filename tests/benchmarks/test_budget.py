"""The cost of a batch is fitted to measured times."""

import itertools
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.budget import Cost, fitted, main

CELLS = list(itertools.product((1, 2, 4, 8, 16), (2.0, 7.0, 16.7)))
PARTS = st.floats(1e-4, 1e-1)


def times(cost):
    return [cost.of(clips, seconds) for clips, seconds in CELLS]


@given(PARTS, PARTS, st.sampled_from([0.0, 1e-5, 1e-3]))
def test_times_that_follow_the_formula_give_its_parts(batch, second, square):
    cost = Cost(batch, second, square)

    found = fitted(*zip(*CELLS, strict=True), times(cost))

    for clips, seconds in CELLS:
        assert found.of(clips, seconds) == pytest.approx(cost.of(clips, seconds), rel=1e-6)


@given(PARTS, PARTS, st.floats(0, 1e-3), st.floats(1, 60), st.floats(0.5, 0.99))
def test_a_batch_of_the_budget_has_its_share_of_the_highest_speed(batch, second, square, seconds, share):
    cost = Cost(batch, second, square)

    clips = cost.budget(seconds, share) / seconds

    highest = cost.second + cost.square * seconds
    assert highest / (cost.of(clips, seconds) / (clips * seconds)) == pytest.approx(share)


def test_times_that_do_not_grow_want_all_the_audio_there_is():
    found = fitted(*zip(*CELLS, strict=True), [1.0] * len(CELLS))

    assert found.budget(10, 0.95) > 1e6


def test_no_part_is_negative():
    saved = [clips * seconds * 0.01 - 0.005 for clips, seconds in CELLS]

    found = fitted(*zip(*CELLS, strict=True), saved)

    assert min(found.batch, found.square) >= 0
    assert found.second > 0


def test_a_budget_stands_below_its_length(tmp_path, monkeypatch, capsys):
    rows = [
        {"dtype": "float32", "batch": clips, "seconds": seconds, "p50": 1 + clips * seconds} for clips, seconds in CELLS
    ]
    file = tmp_path / "latency"
    file.write_text(json.dumps({"benchmark": "latency", "rows": rows}))
    monkeypatch.setattr(sys, "argv", ["budget", str(file)])

    main()

    _, lengths, budgets, _ = capsys.readouterr().out.splitlines()
    assert len(lengths) == len(budgets)
