"""The simulation answers every request once, as the service would: long recordings part by part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.budget import Cost
from benchmarks.queueing import LONGEST, Ours, Request, Staged, Window, simulate
from benchmarks.starvation import ClipsFirst, InOrder, clips

COST = Cost(1.0, 0.1, 0.0)
BUDGET = 60.0


def steno():
    return Staged(BUDGET, Ours(BUDGET, 10.0))


@pytest.mark.parametrize(
    "policy",
    [InOrder(BUDGET), Window(), Staged(BUDGET, ClipsFirst(BUDGET, 10.0)), steno()],
    ids=("in order", "window", "clips first", "steno"),
)
def test_every_request_is_done_after_it_was_sent(policy):
    requests = sorted(
        [*clips(lambda _: 0.5, 10.0, 300.0, seed=3), Request(5.0, 400.0), Request(50.0, 90.0)],
        key=lambda one: one.arrives,
    )

    times = simulate(requests, policy, COST)

    assert len(times.done) == len(requests) > 50
    assert all(done > queued >= 0.0 for done, queued in zip(times.done, times.queued, strict=True))
    assert sum(times.batches) >= max(times.done)


@given(st.lists(st.floats(1.0, LONGEST), min_size=1, max_size=30))
def test_batches_in_order_are_within_the_budget_and_in_order(lengths):
    policy, requests = InOrder(BUDGET), [Request(0.0, seconds) for seconds in lengths]

    times = simulate(requests, policy, COST)

    assert times.queued == sorted(times.queued)
    assert max(times.batches) <= COST.of(1, BUDGET) + 1e-9


def test_a_short_clip_does_not_wait_for_an_hour():
    requests = [Request(0.0, 3600.0), Request(0.0, 3600.0), Request(10.0, 2.0)]

    staged, in_order = (simulate(requests, policy, COST).queued[2] for policy in (steno(), InOrder(BUDGET)))

    assert staged < 4 * COST.of(1, LONGEST)
    assert in_order > 100 * COST.of(1, LONGEST)


def test_parts_that_are_longer_than_the_window_enter_one_by_one():
    times = simulate([Request(0.0, 90.0)], Staged(20.0, Ours(20.0, 10.0)), COST)

    assert times.batches == [COST.of(1, 45.0)] * 2
    assert times.done == [sum(times.batches)]


def test_parts_of_long_recordings_take_turns():
    requests = [Request(0.0, 20 * LONGEST), Request(0.0, 20 * LONGEST)]

    first, second = simulate(requests, steno(), COST).done

    assert second - first <= 2 * COST.of(1, LONGEST)
