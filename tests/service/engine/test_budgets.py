"""Budgets that find themselves, and where they are kept."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.budgets import BudgetCache, Setup, knee, largest_that_fits

SETUP = Setup("model.nemo:10:20", "AMD EPYC", "bfloat16", 2, 40.0, "0.1 2.13")


@given(st.floats(0.001, 1.0), st.floats(0.001, 1.0), st.integers(2, 16), st.floats(1.0, 30.0))
def test_at_the_knee_a_batch_has_95_percent_of_the_highest_throughput(fixed, each, rows, seconds):
    found = knee(fixed + each, fixed + rows * each, rows, seconds)

    utterances = found / seconds
    assert utterances / (fixed + utterances * each) == pytest.approx(0.95 / each, rel=1e-3)


def test_where_larger_batches_take_no_longer_there_is_no_knee():
    assert knee(1.0, 1.0, 4, 7.0) == float("inf")
    assert knee(1.0, 8.0, 4, 7.0) == 0.0  # nor where they take longer than one by one: measured on a busy machine


@given(st.floats(10.0, 4000.0), st.floats(1.0, 10.0), st.floats(0.0, 8000.0))
def test_what_is_found_fits_and_hardly_more_would(most, least, room):
    found = []

    def fits(seconds):
        yield seconds
        return seconds <= room

    def search():
        found.append((yield from largest_that_fits(most, least, fits)))

    tried = list(search())
    (found,) = found

    assert least <= found <= most
    assert found <= room or found == least
    assert found in (most, least) or found * (1 + 1 / 8) + 1e-6 >= min(room, most)
    assert len(tried) <= 16


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
    ):
        assert cache.find(replace(SETUP, **other)) is None
    assert [file.name for file in path.parent.iterdir()] == ["budgets.json"]


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
