"""The learning rate climbs in a line, stays, falls in a cosine, and ends where the recipe says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.schedule import learning_rate


@given(st.integers(1, 1000), st.integers(0, 1000), st.floats(0, 1), st.floats(0, 1))
def test_it_rises_to_the_peak_and_falls_to_the_end(steps, warmup, decay, final):
    rates = [learning_rate(s, steps=steps, peak=1.0, warmup=warmup, decay=decay, final=final) for s in range(steps)]

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
    rates = [learning_rate(step, steps=10, peak=1.0, warmup=0, decay=decay, final=0.25) for step in range(10)]
    assert rates == pytest.approx([1.0] * (10 - len(fall)) + fall)


def test_halfway_down_a_cosine_is_the_middle():
    whole = {"steps": 111, "warmup": 10, "decay": 1.0}
    assert learning_rate(60, peak=2.0, final=0.1, **whole) == pytest.approx(1.1)
    assert learning_rate(35, peak=1.0, final=0.0, **whole) == pytest.approx((1 + math.sqrt(0.5)) / 2)
