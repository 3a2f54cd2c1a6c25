"""Two HTTP processes before one dispatcher, over real sockets, beside a service of one process."""

import contextlib
import hashlib
import os
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from benchmarks.stub_engine import CRASH_SAMPLES, FAIL_SAMPLES, SAMPLE_RATE
from service.workers import supervisor
from tests.service.serving import PATIENCE, ThreadedServer, form, serving, tone, wait_for, wav
from tests.service.workers.connections import answer, posted, reconnect, wait_until_listening, workers

pytestmark = pytest.mark.slow

LONGEST = 5.0
# One that need not know the language, and one that has to be told.
MODELS = {"model": ("stub.nemo", "prompted.nemo"), "language_identifier": "finder.nemo"}


@pytest.fixture(scope="module")
def one():
    with serving(**MODELS, max_utterance_seconds=LONGEST) as served:
        yield served


@pytest.fixture(scope="module")
def two():
    with serving(**MODELS, max_utterance_seconds=LONGEST, http_processes=2) as served:
        wait_until_listening(served)
        yield served


def test_after_a_service_said_that_it_is_ready_no_process_says_that_a_model_is_loading(monkeypatch):
    monkeypatch.setattr(supervisor, "_PUBLISH_SECONDS", 2.0)  # so that only what changed is told in time
    with serving(http_processes=2) as served:
        assert served.post(**form(wav(tone(SAMPLE_RATE)))).status_code == 200


def stereo() -> bytes:
    both = np.stack([tone(SAMPLE_RATE), tone(SAMPLE_RATE, 0.2)], axis=1)
    return wav(both)


def long_speech(golden: Path) -> np.ndarray:
    """Speech of two voices that has to be cut."""
    voices = [soundfile.read(golden / "clips" / f"{name}.wav", dtype="float32")[0] for name in ("rms-6s", "slt-12s")]
    return np.concatenate([part for voice in voices for part in (voice, np.zeros(2 * SAMPLE_RATE, np.float32))])


REQUESTS = {
    **{
        shape: form(wav(tone(SAMPLE_RATE)), response_format=shape)
        for shape in ("json", "text", "srt", "vtt", "verbose_json")
    },
    "streamed": form(wav(tone(SAMPLE_RATE)), stream="true"),
    "logprobs": form(wav(tone(SAMPLE_RATE)), **{"include[]": "logprobs"}),
    "by channel": form(stereo(), multichannel="true"),
    "the body itself": {"content": wav(tone(SAMPLE_RATE)), "headers": {"content-type": "audio/wav"}},
    "silent and long": form(wav(np.zeros(20 * SAMPLE_RATE, np.float32))),
    "no audio": form(b"nothing"),
    "unknown model": form(wav(tone(SAMPLE_RATE)), model="nobody"),
    "wrong field": form(wav(tone(SAMPLE_RATE)), response_format="poem"),
    "twice the engine's death": form(wav(tone(CRASH_SAMPLES))),
    "identified": form(wav(tone(64_001)), model="prompted", language="auto", response_format="verbose_json"),
    "narrowed": form(wav(tone(64_000)), model="prompted", **{"languages[]": ["de", "fr"]}),
    "identified and streamed": form(wav(tone(63_999)), model="prompted", stream="true", response_format="verbose_json"),
    "identified by channel": form(stereo(), model="prompted", multichannel="true", response_format="verbose_json"),
    "named": form(wav(tone(64_001)), model="prompted", language="de"),
    "failing": form(wav(tone(FAIL_SAMPLES)), model="prompted"),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_answers_are_those_of_one_process(one, two, kind):
    answers = [served.post(**REQUESTS[kind]) for served in (one, two)]

    assert answers[0].text == answers[1].text
    assert answers[0].status_code == answers[1].status_code
    for name in ("content-type", "x-steno-model", "retry-after", "x-should-retry"):
        assert answers[0].headers.get(name) == answers[1].headers.get(name)


def test_languages_of_parts_are_identified_as_in_one_process(one, two, golden):
    arguments = form(wav(long_speech(golden)), model="prompted", response_format="verbose_json")
    answers = [served.post(**arguments) for served in (one, two)]

    assert answers[0].json()["language_source"] == "audio"
    assert len(answers[0].json()["segments"]) > 1
    assert answers[0].json()["transcribed_seconds"] > LONGEST
    assert answers[0].json() == answers[1].json()
    wait_until_nothing_is_held(two)


def wait_until_nothing_is_held(served: ThreadedServer) -> None:
    admission = served.server.dispatcher.admission
    wait_for(lambda: admission.requests == admission.stored_bytes == 0 and not admission.backlog.entries)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/healthz"),
        ("HEAD", "/v1/models"),
        ("GET", "/v1/models/stub"),
        ("GET", "/v1/models/nobody"),
        ("GET", "/nothing?at=all"),
        ("POST", "/healthz"),
        ("PUT", "/v1/audio/transcriptions"),
        ("POST", "/v1/audio/translations"),
        ("POST", "/v1/audio/jobs"),
        ("GET", "/"),
        ("GET", "/openapi.json"),
    ],
)
def test_all_other_requests_are_answered_as_by_one_process(one, two, method, path):
    answers = [served.client.request(method, path) for served in (one, two)]

    bodies = [re.sub(r'"created":\d+', "", told.text) for told in answers]
    assert bodies[0] == bodies[1]
    assert answers[0].status_code == answers[1].status_code
    assert sorted(name for name, _ in answers[0].headers.raw) == sorted(name for name, _ in answers[1].headers.raw)


def begun_job(port: int, *, body: bytes = b"", headers: str = "") -> socket.socket:
    """A connection on which a job is sent, with less of its body than it announces."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall(
        f"POST /v1/audio/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: audio/wav\r\n"
        f"content-length: 1000000\r\n{headers}\r\n".encode()
        + body
    )
    return connection


@pytest.mark.parametrize("headers", ["", "expect: 100-continue\r\n"])
def test_a_job_that_is_refused_at_its_head_is_answered_though_its_body_never_ends(one, two, headers):
    for served in (one, two):
        told = answer(begun_job(served.server.port, body=b"" if headers else b"RIFF", headers=headers))

        assert told.startswith(b"HTTP/1.1 403 Forbidden")  # there is no folder for jobs; nor is a body asked for
        assert b"jobs_disabled" in told


@pytest.fixture(scope="module")
def with_jobs(tmp_path_factory):
    with serving(http_processes=2, jobs_folder=tmp_path_factory.mktemp("jobs")) as served:
        wait_until_listening(served)
        yield served


def test_a_client_of_a_relayed_request_that_leaves_is_noticed(with_jobs):
    connection = begun_job(with_jobs.server.port, body=b"RIFF")
    wait_for(lambda: with_jobs.metric('steno_http_requests_in_flight{endpoint="jobs"}') == 1)

    connection.close()

    wait_for(lambda: with_jobs.metric('steno_http_requests_total{endpoint="jobs",method="POST",status="499"}') == 1)


def test_a_job_is_relayed_in_pieces_after_its_client_was_asked_for_it(with_jobs):
    recording = wav(tone(SAMPLE_RATE))
    connection = socket.create_connection(("127.0.0.1", with_jobs.server.port), PATIENCE)
    connection.sendall(
        b"POST /v1/audio/jobs?response_format=json HTTP/1.1\r\nhost: localhost\r\ncontent-type: audio/wav\r\n"
        b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 Continue")
    for at in range(0, len(recording), 10_000):
        piece = recording[at : at + 10_000]
        connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    connection.sendall(b"0\r\n\r\n")

    told = connection.recv(1 << 16)
    connection.close()

    assert told.startswith(b"HTTP/1.1 202 Accepted")


def test_metrics_are_sums_and_each_request_is_counted_once(two):
    with ThreadPoolExecutor(8) as threads:

        def send(_: int) -> int:
            with httpx.Client(base_url=two.client.base_url, timeout=PATIENCE, trust_env=False) as client:
                return client.post("/v1/audio/translations", **form(wav(tone(2000)), model="nobody")).status_code

        assert set(threads.map(send, range(24))) == {404}

    # Workers send their counts each second.
    def is_counted() -> bool:
        with contextlib.suppress(AssertionError):  # not exported yet
            return two.metric('steno_http_requests_total{endpoint="translations",status="404"}') >= 24
        return False

    wait_for(is_counted)


def test_a_client_that_leaves_frees_what_it_held_in_the_main_process(two):
    two.hold_engine()
    connection = posted(two.server.port, tone(2000))
    wait_for(lambda: len(two.server.dispatcher.admission.backlog.entries) == 1)

    connection.close()

    wait_until_nothing_is_held(two)
    two.release_engine()


@pytest.fixture(scope="module")
def limited():
    with serving(http_processes=2, max_queued_audio_seconds=3.0, max_connections=8, keep_alive_seconds=60) as served:
        wait_until_listening(served)
        yield served


def test_gate_2_refuses_what_the_queue_has_no_room_for(limited):
    limited.hold_engine()
    first = posted(limited.server.port, tone(2 * SAMPLE_RATE))
    wait_for(lambda: limited.server.dispatcher.admission.backlog.seconds == 2)

    refused = limited.post(**form(wav(tone(2 * SAMPLE_RATE))))

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert "2 s of audio are waiting" in refused.json()["error"]["message"]
    limited.release_engine()
    assert b"200 OK" in answer(first)


def test_connections_are_limited_over_all_workers(limited):
    limited.client.close()
    opened, refused = [], 0
    for number in range(30):  # of two addresses, because one gets half of them
        ours = (f"127.0.0.{2 + number % 2}", 0)
        connection = socket.create_connection(("127.0.0.1", limited.server.port), PATIENCE, ours)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        status = connection.recv(1 << 16).split(b"\r\n")[0]
        if b"200" in status:
            opened.append(connection)
        else:
            assert b"503" in status
            refused += 1
            connection.close()
    assert len(opened) == 8
    assert refused == 22
    for connection in opened:
        connection.close()
    reconnect(limited)
    wait_for(lambda: limited.client.get("/healthz").status_code == 200)


def line_of(name: str, key: str, options: str = "") -> str:
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()} {options}\n"


LIMITED_KEYS = line_of("alice", "a", "requests_per_minute=10") + line_of("bob", "b", "requests_per_minute=1")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A service with a file of keys, and the file."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(LIMITED_KEYS + line_of("carol", "old"))
    with serving(http_processes=2, api_keys_file=path) as served:
        wait_until_listening(served)
        yield served, path


def send_with(served: ThreadedServer, key: str) -> httpx.Response:
    """The answer to a request on a connection of its own."""
    with httpx.Client(base_url=served.client.base_url, timeout=PATIENCE, trust_env=False) as client:
        headers = {"authorization": f"Bearer {key}"}
        return client.post("/v1/audio/transcriptions", **form(wav(tone(2000))), headers=headers)


def answers_of_workers(served: ThreadedServer, key: str) -> list[httpx.Response]:
    """The answer of each worker, while the others are stopped."""
    answers = []
    for pid in workers(served):
        others = [other for other in workers(served) if other != pid]
        for other in others:
            os.kill(other, signal.SIGSTOP)
        try:
            answers.append(send_with(served, key))
        finally:
            for other in others:
                os.kill(other, signal.SIGCONT)
    return answers


def test_limits_of_a_key_hold_over_all_workers(keyed):
    served, _ = keyed
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: send_with(served, "a"), range(24)))

    codes = [one.status_code for one in answers]
    assert codes.count(429) == 24 - codes.count(200)
    assert 10 <= codes.count(200) <= 12  # the bucket is refilled meanwhile
    assert {int(one.headers["x-ratelimit-limit-requests"]) for one in answers} == {10}
    refused = next(one for one in answers if one.status_code == 429)
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 1


def test_a_worker_that_only_refuses_says_what_is_left_of_a_limit_too(keyed):
    served, _ = keyed

    answers = answers_of_workers(served, "b")

    assert [one.status_code for one in answers] == [200, 429]
    assert [one.headers["x-ratelimit-remaining-requests"] for one in answers] == ["0", "0"]


def test_all_workers_follow_the_file_of_keys(keyed):
    served, path = keyed
    assert [one.status_code for one in answers_of_workers(served, "old")] == [200, 200]

    path.write_text(LIMITED_KEYS + line_of("carol", "new", "requests_per_minute=600"))

    wait_for(lambda: [one.status_code for one in answers_of_workers(served, "new")] == [200, 200])
    new = answers_of_workers(served, "new")
    assert {one.headers["x-ratelimit-limit-requests"] for one in new} == {"600"}
    assert [one.status_code for one in answers_of_workers(served, "old")] == [401, 401]
