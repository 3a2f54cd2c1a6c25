"""Budgets that find themselves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.budgets import knee, least_fast_enough


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
