"""Recordings become utterances, and utterances one transcript."""

import asyncio
import gc
import itertools
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest

from audio.recording import Recording
from service.dispatch.cut_recording import CutRecording
from service.dispatch.errors import DeadlineExceededError, TranscriptionFailedError
from service.dispatch.recordings import Options, Recordings
from service.engine.protocol import FailureKind
from tests.asynchronous import asynchronous
from tests.service.dispatch import virtual_time
from tests.service.dispatch.fake_engine import (
    LANE,
    RATE,
    READY,
    FakeEngine,
    Immediately,
    counted,
    dispatcher,
    is_free,
    recorded,
    settle,
)

OPTIONS = Options("me", LANE, most_seconds=60.0)


def front(max_queued_audio_seconds: float = 1000.0):
    dispatching, engine = dispatcher(max_queued_audio_seconds), FakeEngine()
    dispatching.engine_ready(engine, READY)
    return dispatching, engine, Recordings(dispatching, Immediately())


async def assert_first_comes(answers, dispatching, engine) -> None:
    """The answer of the first part is there as soon as the engine has it."""
    first = asyncio.ensure_future(anext(answers))
    await settle()
    engine.answer(dispatching)
    await settle()
    assert first.done()
    assert first.result().transcript.text == "1.0"


async def collect(answers) -> list:
    return [answer async for answer in answers]


@asynchronous
async def test_parts_are_answered_in_order_whatever_order_they_are_done_in(monkeypatch):
    dispatching, engine, recordings = front()
    with recorded(monkeypatch, 40, (1, 9), (10, 12), (20, 29), (30, 31)) as source:
        asked = asyncio.create_task(collect(recordings.transcribe(source, OPTIONS)))
        while not asked.done():
            await settle()
            if engine.batches:
                engine.answer(dispatching)

        answers = await asked

    assert [answer.transcript.text for answer in answers] == ["1.0", "10.0", "20.0", "30.0"]
    assert dispatching.admission.backlog.seconds == 0
    assert counted(dispatching, "audio_seconds_total", outcome="ok", model="m") == pytest.approx(40)


@asynchronous
async def test_a_short_recording_is_one_utterance_and_does_not_wait_for_the_window(monkeypatch):
    dispatching, engine, recordings = front()
    dispatching.window.samples = 1
    await dispatching.window.acquire(1)
    with recorded(monkeypatch, 3, rule=None) as source:
        asked = asyncio.create_task(collect(recordings.transcribe(source, OPTIONS)))
        await settle()
        engine.answer(dispatching)

        (answer,) = await asked

    assert answer.transcript.text == "0.0"


@asynchronous
async def test_an_answer_does_not_wait_until_the_next_part_enters_the_window(monkeypatch):
    dispatching, engine, recordings = front()
    dispatching.window.samples = 25 * RATE
    await dispatching.window.acquire(20 * RATE)  # another recording's
    with recorded(monkeypatch, 40, (1, 5), (20, 30)) as source:
        async with aclosing(recordings.transcribe(source, OPTIONS)) as answers:
            await assert_first_comes(answers, dispatching, engine)

    await dispatching.window.acquire(5 * RATE)  # the queue is empty
    assert not dispatching.window.acquire(1).done()


@pytest.mark.parametrize(("waited", "left"), [(0.0, 63.0), (50.0, 13.0)])
def test_the_wait_for_a_model_counts_in_a_recordings_deadline(monkeypatch, waited, left):
    async def scenario() -> None:
        _, _, recordings = front()
        with recorded(monkeypatch, 3, rule=None) as source:
            with pytest.raises(DeadlineExceededError):
                await collect(recordings.transcribe(source, replace(OPTIONS, most_seconds=60.0 - waited)))

        assert asyncio.get_running_loop().time() == pytest.approx(left)

    virtual_time.run(scenario())


@asynchronous
async def test_silence_has_no_answers_and_is_counted(monkeypatch):
    dispatching, _, recordings = front()
    with recorded(monkeypatch, 40) as source:
        assert await collect(recordings.transcribe(source, OPTIONS)) == []
    assert counted(dispatching, "audio_seconds_total", outcome="ok", model="m") == 40


@asynchronous
async def test_parts_in_memory_are_limited(monkeypatch):
    dispatching, engine, recordings = front()
    dispatching.window.samples = 25 * RATE
    cuts = [(start, start + 10) for start in range(0, 200, 10)]
    with recorded(monkeypatch, 200, *cuts) as source:
        asked = asyncio.create_task(collect(recordings.transcribe(source, OPTIONS)))
        while not asked.done():
            await settle()
            with_engine = sum(map(len, itertools.chain(*engine.batches.values()))) / RATE
            backlog = dispatching.admission.backlog
            waiting = counted(dispatching, "queue_audio_seconds", model="m")
            assert waiting - backlog.unstaged_seconds("m") + with_engine <= 25
            assert waiting + with_engine <= backlog.seconds
            if engine.batches:
                engine.answer(dispatching)

        assert len(await asked) == 20


def test_short_uploads_pass_an_hour_of_audio_after_the_batch_under_way(monkeypatch):
    async def scenario() -> None:
        dispatching, engine, recordings = front(max_queued_audio_seconds=4000.0)

        async def short(value: float) -> list:
            with Recording(RATE, 10.0) as recording:
                recording.append(np.full(RATE, value, np.float32).tobytes())
                whole = CutRecording(recording, None, None, Immediately())
                return await collect(recordings.transcribe(whole, replace(OPTIONS, caller=f"short {value}")))

        with recorded(monkeypatch, 3600, *[(start, start + 10) for start in range(0, 3600, 10)]) as hour:
            slow = asyncio.create_task(collect(recordings.transcribe(hour, replace(OPTIONS, caller="hour"))))
            await settle()
            batches = 0
            while not slow.done():
                arrivals = [asyncio.create_task(short(-value)) for value in range(1, 4)]
                await settle()
                engine.answer(dispatching)  # what was under way when they came
                await settle()
                engine.answer(dispatching)
                await settle()
                assert all(arrival.done() for arrival in arrivals)
                batches += 2

            assert [answer.transcript.text for answer in await slow] == [f"{start}.0" for start in range(0, 3600, 10)]
        assert batches < 130  # half of them are the clips', and while these come an hour is 60 batches of 60 s

    asyncio.run(scenario())


@asynchronous
async def test_a_caller_who_leaves_takes_all_its_parts_along(monkeypatch):
    dispatching, engine, recordings = front()
    with recorded(monkeypatch, 200, *[(start, start + 10) for start in range(0, 200, 10)]) as source:
        answers = recordings.transcribe(source, OPTIONS)
        first = asyncio.create_task(anext(answers))
        await settle()
        engine.answer(dispatching)
        await first
        await answers.aclose()

        assert counted(dispatching, "queue_depth", model="m") == 0
        assert dispatching.admission.backlog.seconds == 0
        assert is_free(dispatching.window)
        done = counted(dispatching, "audio_seconds_total", outcome="ok", model="m")
        assert counted(dispatching, "audio_seconds_total", outcome="cancelled", model="m") == pytest.approx(200 - done)


@asynchronous
async def test_a_part_that_fails_fails_the_recording_and_drops_the_rest(monkeypatch):
    dispatching, engine, recordings = front()
    with recorded(monkeypatch, 60, (0, 10), (10, 20), (20, 30), (30, 40)) as source:
        asked = asyncio.create_task(collect(recordings.transcribe(source, OPTIONS)))
        await settle()
        engine.fail(dispatching, FailureKind.BATCH)  # the first part leaves alone, being alone at first
        await settle()

        with pytest.raises(TranscriptionFailedError):
            await asked

    assert counted(dispatching, "queue_depth", model="m") == 0
    assert dispatching.admission.backlog.seconds == 0
    assert is_free(dispatching.window)
    assert counted(dispatching, "audio_seconds_total", outcome="error", model="m") == 60


@asynchronous
async def test_of_several_parts_that_fail_the_first_is_raised_and_the_others_are_not_logged(monkeypatch):
    unretrieved = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    dispatching, engine, recordings = front()
    with recorded(monkeypatch, 40, (1, 5), (10, 15), (20, 25)) as source:
        async with aclosing(recordings.transcribe(source, OPTIONS)) as answers:
            first = asyncio.ensure_future(anext(answers))
            await settle()
            engine.answer(dispatching)
            await first
            dispatching.abandon(lambda: TranscriptionFailedError("it failed"))
            dispatching.engine_lost(engine, "exit")
            await settle()
            with pytest.raises(TranscriptionFailedError):
                await anext(answers)
    gc.collect()
    await settle()
    assert not unretrieved


@asynchronous
async def test_a_part_that_does_not_enter_the_window_in_time_is_an_error(monkeypatch):
    dispatching, _, recordings = front()
    await dispatching.window.acquire(10**9)
    with recorded(monkeypatch, 20, (0, 10)) as source, pytest.raises(DeadlineExceededError):
        await collect(recordings.transcribe(source, replace(OPTIONS, most_seconds=-19.99)))


@asynchronous
async def test_a_job_uses_a_window_of_its_own(monkeypatch):
    """Because its parts enter another window, a recording that comes later is cut and read at once."""

    dispatching, engine, recordings = front(max_queued_audio_seconds=35.0)
    with recorded(monkeypatch, 200, *((start, start + 10) for start in range(0, 200, 10))) as job:
        running = asyncio.create_task(  # it is over the limit, and let in
            collect(recordings.transcribe(job, Options("job", LANE)))
        )
        await settle()
        with recorded(monkeypatch, 30, (0, 10), (10, 20), (20, 30)) as ours:
            asked = asyncio.create_task(collect(recordings.transcribe(ours, OPTIONS)))
            while not asked.done():
                await settle()
                if engine.batches:
                    engine.answer(dispatching)
            assert len(asked.result()) == 3
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert dispatching.admission.backlog.seconds == 0
