import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.errors import InvalidAudioError
from service.dispatch.errors import DrainingError, EngineLostError, OverloadedError, TranscriptionFailedError
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from service.http.keys.allowance import Allowance, duration
from service.keys import KeyLimits
from tests.service.dispatch.virtual_time import Clock, run


def begin(allowance: Allowance, seconds: float = 0.0) -> int | None:
    """Ask for a transcript; return the seconds to wait if it is refused."""
    try:
        with allowance.enter(1), allowance.audio(seconds):
            return None
    except RequestError as refusal:
        return refusal.retry_after


@given(
    st.integers(1, 100),
    st.floats(1, 1000),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 600)), max_size=60),
)
def test_no_more_than_a_minutes_worth_at_once_and_the_rate_on_average(requests, audio, steps):
    clock = Clock()
    allowance = Allowance(KeyLimits(requests_per_minute=requests, audio_seconds_per_minute=audio), clock)
    began, taken, used = clock.now, 0, 0.0
    longest = 0.0
    for pause, seconds in steps:
        clock.now += pause
        if begin(allowance, seconds) is None:
            taken, used, longest = taken + 1, used + seconds, max(longest, seconds)
        minutes = 1 + (clock.now - began) / 60  # the first minute's worth is there from the start
        assert taken <= requests * minutes + 1e-6
        assert used <= audio * minutes + longest + 1e-6


@given(st.integers(1, 100), st.floats(1, 1000), st.lists(st.floats(0.1, 600), min_size=1, max_size=40))
def test_a_request_after_its_retry_after_is_accepted(requests, audio, recordings):
    clock = Clock()
    allowance = Allowance(KeyLimits(requests_per_minute=requests, audio_seconds_per_minute=audio), clock)
    for seconds in recordings:
        waits = 0
        while (wait := begin(allowance, seconds)) is not None:
            clock.now += wait
            waits += 1
        assert waits <= 2  # for requests and for audio


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (OverloadedError("full", 1), False),
        (DrainingError("ends", 1), False),
        (EngineLostError("twice"), False),
        (MemoryError(), False),
        (RequestError("it cannot be loaded", code=ErrorCode.MODEL_LOAD_FAILED, status=503), False),
        (RequestError("wrong", code=ErrorCode.INVALID_VALUE), True),
        (InvalidAudioError("no audio"), True),
        (TranscriptionFailedError("broken"), True),
    ],
)
def test_a_request_that_the_service_could_not_take_does_not_count(error, counts):
    allowance = Allowance(KeyLimits(requests_per_minute=1), Clock())
    with pytest.raises(type(error)), allowance.enter(1):
        raise error

    assert (begin(allowance) is None) != counts


def test_headers_have_the_limits_that_are_set():
    clock = Clock()
    allowance = Allowance(KeyLimits(requests_per_minute=60, audio_seconds_per_minute=600), clock)

    assert begin(allowance, 90.5) is None
    assert dict(allowance.headers()) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-audio-seconds": "600",
        "x-ratelimit-remaining-audio-seconds": "509",
        "x-ratelimit-reset-audio-seconds": "10s",
    }
    clock.now += 9.0395
    assert dict(allowance.headers())["x-ratelimit-reset-audio-seconds"] == "11ms"
    assert dict(Allowance(KeyLimits(max_requests=1), clock).headers()) == {}


def test_audio_beyond_an_allowance_is_given_to_one_request():
    allowance = Allowance(KeyLimits(audio_seconds_per_minute=10), Clock())
    with allowance.enter(1), allowance.enter(1), allowance.audio(60), pytest.raises(RequestError), allowance.audio(1):
        pass


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        *((0, "0s"), (0.0001, "1ms"), (0.0201, "21ms"), (0.9999, "1s")),
        *((1, "1s"), (59.2, "1m0s"), (360, "6m0s"), (3600, "1h0m0s"), (5025, "1h23m45s")),
    ],
)
def test_times_are_written_as_openais_headers_have_them(seconds, written):
    assert duration(seconds) == written


def test_who_waits_for_audio_goes_on_as_soon_as_some_is_left():
    async def waited() -> float:
        loop = asyncio.get_running_loop()
        allowance = Allowance(KeyLimits(audio_seconds_per_minute=60.0), loop.time)
        with allowance.audio(100.0):  # 40 more than a minute's
            await allowance.until_audio()
        return loop.time()

    assert run(waited()) == pytest.approx(40.0, abs=1.5)
