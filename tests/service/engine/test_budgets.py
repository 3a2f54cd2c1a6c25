"""Budgets that find themselves, and where they are kept."""

import json
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.budgets import BudgetCache, Setup, knee, least_fast_enough

SETUP = Setup("model.nemo:10:20", "AMD EPYC", "bfloat16", 2, 40.0, "0.1 2.13")


@given(st.floats(0.001, 1.0), st.floats(0.001, 1.0), st.integers(2, 16), st.floats(1.0, 30.0))
def test_at_the_knee_a_batch_has_95_percent_of_the_highest_throughput(fixed, each, rows, seconds):
    found = knee(fixed + each, fixed + rows * each, rows, seconds)

    utterances = found / seconds
    assert utterances / (fixed + utterances * each) == pytest.approx(0.95 / each, rel=1e-3)


def test_where_larger_batches_take_no_longer_there_is_no_knee():
    assert knee(1.0, 1.0, 4, 7.0) == float("inf")
    assert knee(1.0, 8.0, 4, 7.0) == 0.0  # nor where they take longer than one by one: measured on a busy machine


@given(st.floats(1.0, 100.0), st.floats(50.0, 4000.0), st.floats(0.0, 8000.0), st.floats(0.0, 200.0))
def test_the_least_of_the_doubled_budgets_that_is_fast_enough_and_fits_is_found(least, most, room, fixed):
    found = []

    def speed_of(seconds):
        return seconds / (fixed + seconds) if seconds <= room else 0.0

    def speed(seconds):
        yield seconds
        return speed_of(seconds)

    def search():
        found.append((yield from least_fast_enough(least, most, speed)))

    tried = list(search())
    (found,) = found

    assert tried[0] == min(least, most)
    assert all(after == min(2 * before, most) for before, after in pairwise(tried))
    assert tried[-1] == most or tried[-1] > room
    assert found == min(seconds for seconds in tried if speed_of(seconds) >= 0.95 * max(map(speed_of, tried)))


def test_a_budget_is_kept_by_all_that_it_depends_on(tmp_path):
    path = tmp_path / "new" / "budgets.json"
    BudgetCache(path).keep(SETUP, 90.0)
    BudgetCache(path).keep(replace(SETUP, threads=4), 150.0)
    BudgetCache(path).keep(SETUP, 100.0)

    cache = BudgetCache(path)
    assert cache.find(SETUP) == 100.0
    assert cache.find(replace(SETUP, threads=4)) == 150.0
    for other in (
        {"model": "x"},
        {"device": "x"},
        {"dtype": "x"},
        {"longest": 1.0},
        {"versions": "x"},
        {"options": "x"},
        {"share": 0.5},
    ):
        assert cache.find(replace(SETUP, **other)) is None
    assert [file.name for file in path.parent.iterdir()] == ["budgets.json"]


def test_a_budget_of_a_version_that_took_what_fits_is_none_for_this_one(tmp_path):
    path = tmp_path / "budgets.json"
    kept = {name: value for name, value in asdict(SETUP).items() if name != "share"}
    path.write_text(json.dumps([{"setup": kept, "seconds": 1920.0}]))

    assert [seconds for _, seconds in BudgetCache(path)] == [1920.0]
    assert BudgetCache(path).find(replace(SETUP, share=0.95)) is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"setup": {"model": 1}, "seconds": 2}]', "{}"])
def test_a_file_that_is_none_counts_as_empty_and_is_replaced(tmp_path, text):
    path = tmp_path / "budgets.json"
    path.write_text(text)
    cache = BudgetCache(path)

    assert cache.find(SETUP) is None
    cache.keep(SETUP, 90.0)
    assert cache.find(SETUP) == 90.0


def test_the_file_stays_small(tmp_path):
    cache = BudgetCache(tmp_path / "budgets.json")
    for number in range(70):
        cache.keep(replace(SETUP, model=str(number)), number)

    assert [seconds for _, seconds in cache] == list(range(6, 70))


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path):
    (tmp_path / "file").write_text("")

    BudgetCache(tmp_path / "file" / "budgets.json").keep(SETUP, 90.0)
