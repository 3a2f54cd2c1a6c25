"""The learning rate climbs in a line, falls in a cosine, and ends where the recipe says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.schedule import learning_rate


@given(st.integers(1, 1000), st.integers(0, 1000), st.floats(0, 1))
def test_it_rises_to_the_peak_and_falls_to_the_end(steps, warmup, final):
    rates = [learning_rate(step, steps=steps, peak=1.0, warmup=warmup, final=final) for step in range(steps)]

    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(0 < rate <= 1 for rate in rates[:warmup])
    assert all(final <= rate + 1e-12 <= 1 + 1e-9 for rate in rates[warmup:])
    if steps > warmup + 1:
        assert rates[warmup] == 1
        assert rates[-1] == pytest.approx(final)


def test_halfway_down_a_cosine_is_the_middle():
    assert learning_rate(60, steps=111, peak=2.0, warmup=10, final=0.1) == pytest.approx(1.1)
    assert learning_rate(35, steps=111, peak=1.0, warmup=10, final=0.0) == pytest.approx((1 + math.sqrt(0.5)) / 2)
