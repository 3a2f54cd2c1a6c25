"""A stream that waits sends comments, which clients skip, and loses nothing by it."""

import asyncio
import json

import openai
import pytest

from benchmarks.stub_engine import FAIL_SAMPLES, SAMPLE_RATE, transcript
from service.http.transcription import answer
from service.http.transcription.stream import EventStream, with_heartbeats
from tests.service.serving import form, serving, tone, wait_for, wav

SECOND = tone(SAMPLE_RATE)


@pytest.fixture(scope="module")
def service():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answer, "HEARTBEAT_SECONDS", 0.05)
        with serving() as served:
            yield served


def lines_while_held(service, samples, beats: int) -> list[str]:
    """The lines of a stream whose engine is stopped until this many heartbeats have come."""
    with service.held():
        with service.client.stream("POST", "/v1/audio/transcriptions", **form(wav(samples), stream="true")) as answer:
            assert answer.status_code == 200
            lines = []
            for line in answer.iter_lines():
                lines.append(line)
                if lines.count(": waiting") == beats:
                    service.release_engine()
            return [line for line in lines if line]


def test_a_stream_that_queues_has_heartbeats_before_its_text(service):
    lines = lines_while_held(service, SECOND, beats=3)

    events = [json.loads(line.removeprefix("data: ")) for line in lines if line != ": waiting"]
    assert lines[:3] == [": waiting"] * 3
    assert events[-1]["text"] == transcript(SECOND).text


def test_what_fails_after_heartbeats_is_an_event(service):
    lines = lines_while_held(service, tone(FAIL_SAMPLES), beats=1)

    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "internal_error"


def test_the_work_of_a_client_that_leaves_while_it_waits_is_dropped(service):
    with service.held():
        with service.client.stream("POST", "/v1/audio/transcriptions", **form(wav(SECOND), stream="true")) as answer:
            assert next(answer.iter_lines()) == ": waiting"
        wait_for(lambda: service.server.dispatcher.admission.requests == 0)
    assert service.post(**form(wav(SECOND))).status_code == 200


def test_openais_client_skips_them(service):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{service.server.port}/v1", api_key="none", max_retries=0)
    with service.held():
        with client:
            stream = client.audio.transcriptions.create(file=("a.wav", wav(SECOND)), model="whisper-1", stream=True)
            service.release_engine()
            assert [event.type for event in stream][-1] == "transcript.text.done"


def test_frames_come_through_in_order_and_the_source_is_closed():
    closed = []

    async def frames():
        try:
            for number in range(5):
                await asyncio.sleep(0)
                yield b"%d" % number
        finally:
            closed.append(True)

    async def scenario() -> None:
        assert [frame async for frame in with_heartbeats(frames(), 60.0)] == [b"%d" % number for number in range(5)]
        leaving = with_heartbeats(frames(), 60.0)
        assert await anext(leaving) == b"0"
        await leaving.aclose()

    asyncio.run(scenario())
    assert closed == [True, True]


def test_a_stream_that_is_never_read_is_closed(service, monkeypatch):
    """The client leaves between the start of its stream and the first byte."""

    async def send_nothing(self, send) -> None:
        pass

    monkeypatch.setattr(EventStream, "stream_response", send_nothing)
    with service.held():
        service.post(**form(wav(SECOND), stream="true"))
        wait_for(lambda: service.server.dispatcher.admission.requests == 0)
        wait_for(lambda: service.metric("steno_queue_depth") == 0)
    monkeypatch.undo()
    assert service.post(**form(wav(SECOND))).status_code == 200
