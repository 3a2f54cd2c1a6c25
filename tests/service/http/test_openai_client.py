"""OpenAI's own Python client against the running server: what its users see."""

import io

import openai
import pytest

from benchmarks.stub_engine import CRASH_SAMPLES, SAMPLE_RATE, transcript
from tests.service.serving import ThreadedServer, serving, tone, wav

SECOND = tone(SAMPLE_RATE)
HEARD = transcript(SECOND)


@pytest.fixture(scope="module")
def service():
    with serving() as served:
        yield served


def client_of(service: ThreadedServer, **options) -> openai.OpenAI:
    url = f"http://127.0.0.1:{service.server.port}/v1"
    return openai.OpenAI(
        api_key="unused", base_url=url, http_client=openai.DefaultHttpxClient(trust_env=False), **options
    )


@pytest.fixture(scope="module")
def client(service):
    with client_of(service) as made:
        yield made


def recording(samples=SECOND) -> io.BytesIO:
    file = io.BytesIO(wav(samples))
    file.name = "speech.wav"
    return file


def test_json_is_an_object_with_text_and_usage(client):
    answer = client.audio.transcriptions.create(model="whisper-1", file=recording())

    assert answer.text == HEARD.text
    assert answer.usage.seconds == 1.0


@pytest.mark.parametrize(("response_format", "begins"), [("text", HEARD.text), ("srt", "1\n"), ("vtt", "WEBVTT")])
def test_text_formats_are_strings(client, response_format, begins):
    answer = client.audio.transcriptions.create(model="whisper-1", file=recording(), response_format=response_format)

    assert isinstance(answer, str)
    assert answer.startswith(begins)


def test_verbose_json_has_typed_words_and_segments(client):
    answer = client.audio.transcriptions.create(
        model="whisper-1",
        file=recording(),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )

    assert answer.duration == 1.0
    assert [(word.word, word.start, word.end, word.to_dict()["confidence"]) for word in answer.words] == [
        (word.text, word.start, word.end, word.confidence) for word in HEARD.words
    ]
    assert [segment.text for segment in answer.segments] == [HEARD.text]
    assert answer.segments[0].tokens == HEARD.tokens


def test_json_and_a_stream_have_log_probabilities_when_asked(client):
    asked = {"model": "whisper-1", "include": ["logprobs"]}
    answer = client.audio.transcriptions.create(**asked, file=recording())
    *deltas, done = client.audio.transcriptions.create(**asked, file=recording(), stream=True)

    assert "".join(entry.token for entry in answer.logprobs) == HEARD.text
    assert bytes(int(byte) for entry in answer.logprobs for byte in entry.bytes).decode() == HEARD.text
    assert all(entry.logprob < 0 for entry in answer.logprobs)
    assert [entry.token for event in deltas for entry in event.logprobs] == [entry.token for entry in done.logprobs]


@pytest.mark.parametrize("response_format", ["json", "text"])
def test_a_stream_is_deltas_and_then_the_whole(client, response_format):
    events = list(
        client.audio.transcriptions.create(
            model="whisper-1", file=recording(), response_format=response_format, stream=True
        )
    )

    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == HEARD.text


def test_a_stream_has_the_times_of_segments_and_words_when_asked(client):
    events = client.audio.transcriptions.create(
        model="whisper-1",
        file=recording(),
        response_format="verbose_json",
        timestamp_granularities=["word"],
        stream=True,
    )

    (segment,) = [event.to_dict() for event in events if event.type == "transcript.text.segment"]
    assert (segment["text"], segment["start"], segment["end"]) == (HEARD.text, 0, 1)
    assert [word["word"] for word in segment["words"]] == [word.text for word in HEARD.words]


@pytest.mark.parametrize("response_format", ["srt", "vtt"])
def test_a_stream_of_subtitles_is_the_file_piece_by_piece(client, response_format):
    arguments = {"model": "whisper-1", "response_format": response_format}
    *deltas, done = client.audio.transcriptions.create(**arguments, file=recording(), stream=True)

    assert "".join(event.delta for event in deltas) == done.text
    assert done.text == client.audio.transcriptions.create(**arguments, file=recording())


def test_models_are_listed_and_found(client):
    assert [model.id for model in client.models.list()] == ["stub"]
    assert client.models.retrieve("stub").object == "model"


@pytest.mark.parametrize(
    ("arguments", "kind", "code", "param"),
    [
        ({"file": b"not audio"}, openai.BadRequestError, "unsupported_format", "file"),
        ({"model": "gpt-5"}, openai.NotFoundError, "model_not_found", "model"),
        ({"language": "xx"}, openai.BadRequestError, "invalid_value", "language"),
        ({"response_format": "text", "include": ["logprobs"]}, openai.BadRequestError, "unsupported_value", "include"),
        ({"response_format": "diarized_json"}, openai.BadRequestError, "unsupported_value", "response_format"),
    ],
)
def test_errors_have_their_types(client, arguments, kind, code, param):
    with pytest.raises(kind) as refusal:
        client.audio.transcriptions.create(**({"model": "whisper-1", "file": recording()} | arguments))

    assert (refusal.value.code, refusal.value.param) == (code, param)
    assert refusal.value.type == "invalid_request_error"
    assert refusal.value.request_id


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # the client warns of the endpoint
def test_a_model_that_does_not_translate_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as refusal:
        client.audio.translations.create(model="whisper-1", file=recording())

    assert refusal.value.code == "model_not_found"


@pytest.mark.slow
def test_only_errors_that_may_pass_are_retried():
    with serving() as service, client_of(service, max_retries=1) as client:
        retries = 'steno_http_client_retries_total{lang="python"}'
        with pytest.raises(openai.InternalServerError) as lost:
            client.audio.transcriptions.create(model="whisper-1", file=recording(tone(CRASH_SAMPLES)))
        assert (lost.value.status_code, lost.value.code) == (503, "engine_lost")
        assert retries not in service.client.get("/metrics").text

        service.server.dispatcher.admission.is_draining = True
        with pytest.raises(openai.InternalServerError) as refused:
            client.audio.transcriptions.create(model="whisper-1", file=recording())
        assert refused.value.code == "draining"
        assert service.metric(retries) == 1
