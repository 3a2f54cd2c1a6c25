"""The learning rate climbs in a line, stays, falls in a cosine, and ends where the recipe says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.recipe import Optimizer
from training.schedule import learning_rate


@given(st.integers(1, 1000), st.integers(0, 1000), st.floats(0, 1), st.floats(0, 1))
def test_it_rises_to_the_peak_and_falls_to_the_end(steps, warmup, decay, final):
    optimizer = Optimizer(peak=1.0, warmup=warmup, decay=decay, final=final)
    rates = [learning_rate(step, steps, optimizer) for step in range(steps)]

    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(0 < rate <= 1 for rate in rates[:warmup])
    assert all(final <= rate + 1e-12 <= 1 + 1e-9 for rate in rates[warmup:])
    plateau = round(steps * (1 - decay))
    if steps > warmup:
        assert rates[warmup] == 1
    assert all(rate == 1 for rate in rates[warmup:plateau])
    if steps > max(warmup + 1, plateau):
        assert rates[-1] == pytest.approx(final)


@pytest.mark.parametrize(("decay", "fall"), [(0, []), (0.1, [0.25]), (0.2, [0.625, 0.25])])
def test_a_fall_takes_its_share_of_the_steps_and_ends_where_the_recipe_says(decay, fall):
    optimizer = Optimizer(peak=1.0, warmup=0, decay=decay, final=0.25)
    rates = [learning_rate(step, 10, optimizer) for step in range(10)]
    assert rates == pytest.approx([1.0] * (10 - len(fall)) + fall)


def test_halfway_down_a_cosine_is_the_middle():
    assert learning_rate(60, 111, Optimizer(peak=2.0, warmup=10, final=0.1)) == pytest.approx(1.1)
    quarter = learning_rate(35, 111, Optimizer(peak=1.0, warmup=10, final=0.0))
    assert quarter == pytest.approx((1 + math.sqrt(0.5)) / 2)
