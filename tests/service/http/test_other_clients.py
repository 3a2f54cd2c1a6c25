"""OpenAI's clients of other languages and versions against the running server (`make clients`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.stub_engine import SAMPLE_RATE, transcript
from tests.conftest import CLIENTS, ROOT
from tests.service.serving import serving, tone, wav

pytestmark = pytest.mark.clients

KEY = "sk-steno-one"
SECOND = tone(SAMPLE_RATE)
HEARD = transcript(SECOND)
RETRIES = 'steno_http_client_retries_total{lang="js"}'


def ask_from_javascript(service, folder: Path) -> dict:
    recording = folder / "speech.wav"
    recording.write_bytes(wav(SECOND))
    script = Path(__file__).with_name("openai_client.mjs")
    done = subprocess.run(
        ["node", script, f"http://127.0.0.1:{service.server.port}/v1", recording],
        env=os.environ | {"OPENAI_API_KEY": KEY},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def javascript(tmp_path_factory):
    """The results of OpenAI's JavaScript client."""
    with serving() as service:
        yield ask_from_javascript(service, tmp_path_factory.mktemp("javascript"))


def test_javascript_gets_every_format(javascript):
    formats = javascript["formats"]

    assert formats["json"]["text"] == formats["verbose_json"]["text"] == HEARD.text
    assert formats["json"]["usage"] == {"type": "duration", "seconds": 1}
    assert formats["text"] == HEARD.text + "\n"
    assert formats["srt"].startswith("1\n00:00:00,000 --> ")
    assert formats["vtt"].startswith("WEBVTT")


def test_javascript_gets_words_and_segments(javascript):
    timed = javascript["timed"]

    assert [(word["word"], word["start"], word["end"], word["confidence"]) for word in timed["words"]] == [
        (word.text, word.start, word.end, word.confidence) for word in HEARD.words
    ]
    assert [segment["text"] for segment in timed["segments"]] == [HEARD.text]


def test_javascript_gets_log_probabilities(javascript):
    assert "".join(entry["token"] for entry in javascript["logprobs"]["logprobs"]) == HEARD.text
    assert javascript["sureEvents"][-1]["logprobs"] == javascript["logprobs"]["logprobs"]


def test_javascript_gets_a_stream(javascript):
    *deltas, done = javascript["events"]

    assert {event["type"] for event in deltas} == {"transcript.text.delta"}
    assert "".join(event["delta"] for event in deltas) == done["text"] == HEARD.text


def test_javascript_gets_times_in_a_stream(javascript):
    (segment,) = [event for event in javascript["timedEvents"] if event["type"] == "transcript.text.segment"]
    *deltas, done = javascript["subtitleEvents"]

    assert (segment["text"], segment["start"], segment["end"]) == (HEARD.text, 0, 1)
    assert [word["word"] for word in segment["words"]] == [word.text for word in HEARD.words]
    assert "".join(event["delta"] for event in deltas) == done["text"] == javascript["formats"]["vtt"]


def test_javascript_gets_typed_errors(javascript):
    refusals = [(refusal["kind"], refusal["code"], refusal["param"]) for refusal in javascript["refusals"]]

    assert refusals == [
        ("BadRequestError", "unsupported_format", "file"),
        ("NotFoundError", "model_not_found", "model"),
        ("BadRequestError", "invalid_value", "language"),
        ("BadRequestError", "unsupported_value", "include"),
    ]
    assert all(refusal["requestID"] for refusal in javascript["refusals"])
    assert javascript["translation"]["code"] == "model_not_found"


def test_javascript_finds_the_models(javascript):
    assert javascript["models"] == ["stub"]
    assert javascript["model"]["object"] == "model"


@pytest.mark.slow
def test_javascript_tries_again_when_the_service_refuses(tmp_path):
    with serving() as service:
        service.server.dispatcher.admission.is_draining = True

        refused = ask_from_javascript(service, tmp_path)["formats"]

        assert {(refusal["kind"], refusal["code"]) for refusal in refused.values()} == {
            ("InternalServerError", "draining")
        }
        assert service.metric(RETRIES) == len(refused)


@pytest.mark.slow
def test_the_python_client_1_passes_the_same_tests_as_the_current_one():
    tests = Path(__file__).with_name("test_openai_client.py")
    version = "import openai; print(openai.__version__)"
    environment = os.environ | {"PYTHONPATH": str(CLIENTS[1].parent)}

    imported = subprocess.run([sys.executable, "-c", version], env=environment, capture_output=True, text=True)
    of_the_client = "ignore:The 'warn' method:DeprecationWarning"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", of_the_client, tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert imported.stdout.startswith("1.")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
