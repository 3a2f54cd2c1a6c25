"""Unmodified clients of others: the Vercel AI SDK, litellm, LangChain, Java's (`make clients`)."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.stub_engine import SAMPLE_RATE, transcript
from service.keys import digest
from tests.conftest import CLIENTS, ROOT
from tests.service.serving import form, serving, tone, wait_for, wav

PROGRAMS = ROOT / "tests" / "clients"
KEY = "sk-steno-one"
SECOND = tone(SAMPLE_RATE)
HEARD = transcript(SECOND)


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("clients") / "speech.wav"
    path.write_bytes(wav(SECOND))
    return path


@pytest.fixture(scope="module")
def service():
    with serving(api_keys=f"me:{digest(KEY)}") as served:
        yield served


def run(program: str, service, recording: Path, key: str = KEY) -> subprocess.CompletedProcess:
    runner = {".mjs": ["node"], ".py": [sys.executable], ".java": ["java"]}[Path(program).suffix]
    url = f"http://127.0.0.1:{service.server.port}/v1"
    nothing_from_elsewhere = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}
    addresses = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(CLIENTS[3].parent)}
    environment = os.environ | nothing_from_elsewhere | addresses | {"OPENAI_API_KEY": key}
    return subprocess.run(
        [*runner, PROGRAMS / program, url, recording], env=environment, capture_output=True, text=True, check=False
    )


def ask(program: str, service, recording: Path, key: str = KEY) -> dict:
    done = run(program, service, recording, key)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.clients
def test_vercel_gets_text_segments_words_and_typed_errors(service, recording):
    got = ask("vercel.mjs", service, recording)

    assert got["plain"]["text"] == HEARD.text
    assert got["segments"]["segments"] == [{"text": HEARD.text, "startSecond": 0, "endSecond": 1}]
    assert [word["text"] for word in got["options"]["segments"]] == [word.text for word in HEARD.words]
    assert (got["options"]["language"], got["options"]["durationInSeconds"]) == ("en", 1)
    refusals = [got["notAudio"], got["noModel"], got["wrongLanguage"]]
    assert [(one["status"], one["fault"]["code"]) for one in refusals] == [
        (400, "unsupported_format"),
        (404, "model_not_found"),
        (400, "invalid_value"),
    ]
    assert not any(one["isRetryable"] for one in refusals)


@pytest.mark.slow
@pytest.mark.clients
def test_vercel_tries_again_when_its_key_has_enough(recording):
    with serving(api_keys=f"me:{digest(KEY)}", max_requests_per_key=1) as service, ThreadPoolExecutor() as pool:
        service.hold_engine()
        first = pool.submit(service.post, **form(wav(SECOND)), headers={"authorization": f"Bearer {KEY}"})
        wait_for(lambda: service.metric('steno_http_requests_in_flight{endpoint="transcriptions"}') == 1)

        refused = ask("vercel.mjs", service, recording)["plain"]
        service.release_engine()

        assert (refused["status"], refused["fault"]["code"], refused["tries"]) == (429, "rate_limit_exceeded", 2)
        assert first.result().status_code == 200


@pytest.mark.slow
@pytest.mark.clients
def test_litellm_gets_formats_a_stream_and_typed_errors(service, recording):
    got = ask("litellm_client.py", service, recording)

    assert got["plain"]["text"] == HEARD.text
    assert got["options"]["text"] == HEARD.text
    assert [word["word"] for word in got["options"]["words"]] == [word.text for word in HEARD.words]
    assert got["srt"]["text"].startswith("1\n00:00:00,000 --> ")
    assert "".join(event["delta"] for event in got["stream"] if event["type"] == "transcript.text.delta") == HEARD.text
    assert got["stream"][-1]["type"] == "transcript.text.done"
    refusals = [got["not_audio"], got["no_model"], got["wrong_language"], got["wrong_key"]]
    assert [(one["kind"], one["status"]) for one in refusals] == [
        ("BadRequestError", 400),
        ("NotFoundError", 404),
        ("BadRequestError", 400),
        ("AuthenticationError", 401),
    ]
    assert "language" in refusals[2]["message"]


@pytest.mark.clients
def test_a_wrong_key_is_an_error_of_authentication(service, recording):
    assert ask("vercel.mjs", service, recording, key="wrong")["plain"]["status"] == 401


@pytest.mark.slow
@pytest.mark.clients
@pytest.mark.program("ffmpeg")
def test_langchain_in_python_makes_documents(service, recording):
    before = (
        service.metric('steno_errors_total{kind="invalid_value"}')
        if "invalid_value" in (service.client.get("/metrics").text)
        else 0
    )
    got = ask("langchain_client.py", service, recording)

    for documents in (got["plain"], got["options"]):
        assert [document["metadata"] for document in documents] == [{"source": str(recording), "chunk": 0}]
        assert documents[0]["text"].strip()  # of an MP3 that LangChain made, which is no sum that is known
    assert got["wrong_language"] == []
    assert service.metric('steno_errors_total{kind="invalid_value"}') - before == 3  # it tries three times


@pytest.mark.clients
def test_langchain_in_javascript_makes_documents_and_typed_errors(service, recording):
    got = ask("langchain.mjs", service, recording)

    for documents in (got["plain"], got["options"]):
        assert [document["pageContent"] for document in documents] == [HEARD.text]
    assert got["noModel"] == {"status": 404, "code": "model_not_found", "param": "model"}
    assert got["wrongLanguage"] == {"status": 400, "code": "invalid_value", "param": "language"}


@pytest.mark.long
@pytest.mark.program("javac")
def test_javas_own_client_is_answered_though_it_offers_http_2(recording):
    with serving() as service:
        done = run("Ask.java", service, recording)

        assert done.returncode == 0, done.stderr
        rows = {name: rest for name, *rest in (line.split("\t") for line in done.stdout.splitlines())}
        assert rows["json"][:2] == ["200", "HTTP_1_1"]
        assert json.loads(rows["json"][2])["text"] == HEARD.text
        assert rows["options"][2] == rows["raw"][2] == HEARD.text
        assert [rows["unknown"][0], rows["empty"][0], rows["models"][0]] == ["404", "400", "200"]
        events = [json.loads(event.removeprefix("data: ")) for event in rows["stream"][2].split("\\n")]
        assert events[-1] | {"text": HEARD.text, "type": "transcript.text.done"} == events[-1]
        assert rows["many"] == [f"200 {HEARD.text}"]
