"""The backlog's sums are those of its recordings, in any order of arrivals, departures and answers."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dispatch.backlog import Backlog, BacklogEntry

TURN_SECONDS = 60.0


@dataclass
class Recording:
    accepted: BacklogEntry
    unanswered: float


LENGTHS = st.floats(0.0, 3600.0)
SHARES = st.floats(0.0, 1.0)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.sampled_from(["small", "large"]), LENGTHS),
        st.tuples(st.just("is answered"), st.integers(0, 99), SHARES),
        st.tuples(st.just("goes"), st.integers(0, 99), SHARES),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_sums_are_those_of_its_recordings(steps):
    backlog, recordings = Backlog(TURN_SECONDS), []
    for what, which, amount in steps:
        if what == "comes":
            recordings.append(Recording(backlog.add(which, amount), amount))
        elif recordings:
            recording = recordings[which % len(recordings)]
            if what == "is answered":
                backlog.answer(recording.accepted, amount * recording.unanswered)
                recording.unanswered -= amount * recording.unanswered
            else:
                backlog.remove(recording.accepted)
                recordings.remove(recording)

        assert backlog.seconds == pytest.approx(sum(one.unanswered for one in recordings), abs=1e-6)
        for model in ("small", "large"):
            turns = sum(min(one.unanswered, TURN_SECONDS) for one in recordings if one.accepted.model == model)
            assert backlog.turns.get(model, 0.0) == pytest.approx(turns, abs=1e-6)

    for recording in recordings:
        backlog.remove(recording.accepted)
    assert backlog.seconds == 0.0  # exactly: an empty service must not look busy
    assert not any(backlog.turns.values())


@given(LENGTHS, LENGTHS, SHARES)
def test_background_work_does_not_count_in_the_wait_of_others(ours, background, share):
    backlog = Backlog(TURN_SECONDS)
    backlog.add("m", ours)
    before = backlog.seconds, dict(backlog.turns)

    job = backlog.add("m", background, is_background=True)
    assert backlog.unstaged_seconds("m") == ours + background
    backlog.answer(job, share * background)
    assert (backlog.seconds, backlog.turns) == before
    backlog.remove(job)
    assert (backlog.seconds, backlog.turns) == before
