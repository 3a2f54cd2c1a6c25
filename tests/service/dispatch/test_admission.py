import contextlib

import pytest

from service.dispatch.admission import Admission, AdmissionLimits
from service.dispatch.errors import OverloadedError


def admission(**limits) -> Admission:
    defaults = {
        "max_requests": 4,
        "max_stored_bytes": 1000,
        "max_queued_audio_seconds": 100.0,
        "max_wait_seconds": 10.0,
        "timeout_seconds": 600.0,
    }
    gates = Admission(AdmissionLimits(**(defaults | limits)), turn_seconds=1000.0)
    gates.rtfx, gates.is_loaded = {"m": 10.0}, True
    return gates


def test_one_client_leaves_an_eighth_of_the_requests_to_others():
    gates = admission(max_requests=16)

    with contextlib.ExitStack() as under_way:
        for _ in range(14):
            under_way.enter_context(gates.enter(0, "10.0.0.1"))
        with pytest.raises(OverloadedError, match="14 requests of this key or address"), gates.enter(0, "10.0.0.1"):
            pass
        with gates.enter(0, "key a"), gates.enter(0, "10.0.0.2"):
            assert gates.requests == 16
    with gates.enter(0, "10.0.0.1"):
        assert gates.requests == 1


def test_stored_bytes_are_counted_as_they_arrive_and_given_back():
    gates = admission()

    with gates.enter(0) as first, gates.enter(0) as second:
        first.store(900)
        with pytest.raises(OverloadedError, match="bytes"):
            second.store(200)
    assert gates.stored_bytes == 0


def test_an_announced_size_is_refused_before_it_is_sent():
    gates = admission()

    with gates.enter(0) as first:
        first.store(900)
        with pytest.raises(OverloadedError), gates.enter(200):
            pass


def test_an_upload_beside_which_none_is_stored_has_only_its_own_limit():
    gates = admission()

    with gates.enter(0), gates.enter(0) as decoded:
        decoded.store(900)
        decoded.free()
        with gates.enter(5000) as only:
            only.store(5000)

    assert gates.stored_bytes == 0


def test_audio_beyond_the_queue_is_refused_but_never_on_an_empty_queue():
    gates = admission()

    with gates.accept("m", 500.0):
        pass

    with gates.accept("m", 60.0):
        with gates.accept("m", 40.0):
            assert gates.backlog.seconds == 100.0
        with pytest.raises(OverloadedError, match="60 s of audio"), gates.accept("m", 41.0):
            pass
    assert gates.backlog.seconds == 0


@pytest.mark.parametrize(("backlog", "retry_after"), [(101.0, 11), (599.0, 60), (999.0, 60)])
def test_the_predicted_wait_is_refused_with_an_honest_retry_after(backlog, retry_after):
    gates = admission(max_queued_audio_seconds=1e9)

    with gates.accept("m", backlog):
        with pytest.raises(OverloadedError) as refusal, gates.enter(0):
            pass

    assert refusal.value.retry_after == retry_after


def test_a_long_recording_counts_one_turn_in_the_wait_of_others():
    gates = Admission(
        AdmissionLimits(10, 1000, 36_000.0, max_wait_seconds=300.0, timeout_seconds=600.0), turn_seconds=40.0
    )
    gates.rtfx, gates.is_loaded = {"m": 10.0}, True

    with gates.accept("m", 14_400.0) as long, gates.accept("m", 20.0):
        assert gates.predicted_wait == 6.0
        assert gates.backlog.seconds == 14_420.0
        with gates.enter(0):
            pass

        gates.backlog.answer(long, long.unanswered_seconds - 10.0)

        assert gates.predicted_wait == 3.0
