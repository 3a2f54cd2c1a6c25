"""A simulated device waits for batches in transit, unless enough slots hide the time in transit."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pipeline import Times, idle_share
from service.engine.process import _SLOTS

NOW = Times(form=2.0, stage=10.8, collate=9.7, launch=7.0, device=40.0, write=3.6)


def test_with_one_slot_the_device_waits_for_everything_but_the_launches():
    idle = idle_share(NOW, 1, when_done=False)

    # Launches go on while the device computes.
    assert idle == pytest.approx((2.0 + 10.8 + 9.7 + 3.6) / (2.0 + 10.8 + 9.7 + 3.6 + 40.0), rel=0.01)


def test_two_slots_hide_a_round_trip_that_is_no_longer_than_a_batch():
    assert idle_share(NOW, 2, when_done=False) < 0.001
    assert idle_share(dataclasses.replace(NOW, write=31.3), 2, when_done=False) > 0.1


def test_with_an_engines_slots_a_large_gpu_waits_less_than_three_percent():
    assert idle_share(NOW, _SLOTS["cuda"], when_done=False, spread=0.25) < 0.03
    assert idle_share(dataclasses.replace(NOW, write=31.3), _SLOTS["cuda"], when_done=False, spread=0.25) > 0.03


@given(st.builds(Times, *(st.floats(0.5, 50.0) for _ in range(6))), st.integers(1, 4), st.booleans())
def test_more_slots_and_slots_that_are_free_sooner_never_make_it_wait_longer(times, places, when_done):
    idle = idle_share(times, places, when_done=when_done, batches=200)

    assert 0 <= idle < 1
    assert idle_share(times, places + 1, when_done=when_done, batches=200) <= idle + 1e-9
    assert idle_share(times, places, when_done=True, batches=200) <= idle + 1e-9
