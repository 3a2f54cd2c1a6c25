"""`multichannel=true`: each channel by itself, and one answer in the order of time."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.audio import TranscriptionDiarized

from benchmarks.stub_engine import FAIL_SAMPLES, SAMPLE_RATE, transcript
from service.http.transcription.answer import in_order
from tests.service.http.test_api import error
from tests.service.http.test_openai_client import client_of
from tests.service.serving import form, serving, tone, wav
from transcripts.transcript import Transcript, Word
from transcripts.transcription import Part, Turn, turns_of

LEFT, RIGHT = tone(2 * SAMPLE_RATE), tone(2 * SAMPLE_RATE, 0.2)
BOTH = wav(np.stack([LEFT, RIGHT], axis=1))
HEARD = [transcript(LEFT).text, transcript(RIGHT).text]


@pytest.fixture(scope="module")
def service():
    with serving(max_audio_seconds=20.0) as served:
        yield served


def post(service, file: bytes, **fields):
    return service.post(**form(file, multichannel="true", **fields))


def test_with_diarized_json_the_channels_are_speakers_as_openais_client_knows_them(service):
    asked = {"model": "gpt-4o-transcribe", "response_format": "diarized_json", "extra_body": {"multichannel": True}}
    with client_of(service) as client:
        answer = client.audio.transcriptions.create(**asked, file=("call.wav", BOTH))
        *events, done = client.audio.transcriptions.create(**asked, file=("call.wav", BOTH), stream=True)

    TranscriptionDiarized.model_validate(answer.to_dict())  # the client itself does not check types
    assert [(one.speaker, one.text) for one in answer.segments] == [("A", HEARD[0]), ("B", HEARD[1])]
    assert (answer.duration, answer.text, answer.usage.seconds) == (2, " ".join(HEARD), 4)
    segments = [event for event in events if event.type == "transcript.text.segment"]
    assert [event.to_dict() for event in segments] == [segment.to_dict() for segment in answer.segments]
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == done.text == answer.text


def test_a_silent_channel_costs_nothing(service):
    before = service.metric("steno_audio_seconds_total")
    silent = np.zeros_like(LEFT)

    answer = post(service, wav(np.stack([silent, RIGHT, silent], axis=1))).json()

    assert [channel["text"] for channel in answer["channels"]] == ["", HEARD[1], ""]
    assert answer["usage"]["seconds"] == 2.0
    assert service.metric("steno_audio_seconds_total") == before + 2.0
    nothing = post(service, wav(np.stack([silent] * 3, axis=1))).json()
    assert [nothing["text"], *(channel["text"] for channel in nothing["channels"])] == [""] * 4


def test_a_channel_that_fails_is_an_error_of_the_whole(service):
    failing = np.stack([tone(FAIL_SAMPLES), tone(FAIL_SAMPLES, 0.2)], axis=1)

    for stream in ("true", "false"):
        answer = post(service, wav(failing), stream=stream)

        assert answer.status_code == 500
        assert error(answer)["code"] == "internal_error"


def test_channels_that_are_longer_than_a_model_takes_are_cut_each_by_itself():
    with serving(max_utterance_seconds=2.0) as service:
        speech = np.random.default_rng(0).normal(0, 0.1, (5 * SAMPLE_RATE, 2)).astype(np.float32)

        answer = post(service, wav(speech))

        assert answer.status_code == 200
        for number, channel in enumerate(answer.json()["channels"]):
            assert channel["text"] == service.post(**form(wav(speech[:, number]))).json()["text"]


# The order of time


def heard(*starts: float) -> Transcript:
    words = [Word(f"{start:g}.", start, start + 0.1, 1.0, (n, n + 1)) for n, start in enumerate(starts)]
    return Transcript(" ".join(word.text for word in words), list(range(len(words))), [1.0] * len(words), words)


def turn_of(channel: int, start: float) -> Turn:
    return next(turns_of(channel, Part(heard(start), start, 10.0), is_first=True))


async def turns(channel: int, starts):
    for start in sorted(starts):
        await asyncio.sleep(0)
        yield turn_of(channel, start)


@given(st.lists(st.lists(st.floats(0, 9), max_size=6), min_size=1, max_size=4))
def test_turns_of_all_channels_come_in_the_order_of_time(starts):
    async def merged() -> list[tuple[float, int]]:
        streams = [turns(number, some) for number, some in enumerate(starts)]
        return [(turn.start, turn.channel) async for turn in in_order(streams)]

    expected = sorted((start, number) for number, some in enumerate(starts) for start in some)
    assert asyncio.run(merged()) == expected


def test_a_client_that_leaves_ends_the_work_on_every_channel():
    closed = []

    async def endless(number: int):
        try:
            yield turn_of(number, 1.0)
            await asyncio.Event().wait()
        finally:
            closed.append(number)

    async def scenario() -> None:
        merging = in_order([endless(0), endless(1)])
        await anext(merging)
        await merging.aclose()

    asyncio.run(scenario())
    assert sorted(closed) == [0, 1]
