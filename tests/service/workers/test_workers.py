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

from service.engine.stub import CRASH_SAMPLES, FAIL_SAMPLES, SAMPLE_RATE
from service.engine.supervisor import STUB_ENGINE
from tests.service.serving import (
    PATIENCE,
    ThreadedServer,
    form,
    post_bytes,
    serving,
    steno_serve,
    tone,
    wait_for,
    wav,
)

KEY = "secret"
LONGEST = 5.0


@pytest.fixture(scope="module")
def one():
    with serving(max_utterance_seconds=LONGEST) as served:
        yield served


@pytest.fixture(scope="module")
def two():
    with serving(max_utterance_seconds=LONGEST, http_processes=2) as served:
        wait_until_all_answer(served)
        yield served


def wait_until_all_answer(served: ThreadedServer, processes: int = 2) -> None:
    wait_for(lambda: served.metric("steno_http_processes") == processes)


def workers(served: ThreadedServer) -> list[int]:
    return served.server._workers.pids


def posted(port: int, samples: np.ndarray) -> socket.socket:
    """A connection of its own, on which a recording was sent."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall(post_bytes(port, wav(samples)))
    return connection


def answer(connection: socket.socket) -> bytes:
    """The answer on a connection; nothing if it was reset."""
    with connection, contextlib.suppress(ConnectionError):
        received = b""
        while b"}}" not in received and (piece := connection.recv(1 << 16)):
            received += piece
        return received
    return b""


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
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_answers_are_those_of_one_process(one, two, kind):
    answers = [served.post(**REQUESTS[kind]) for served in (one, two)]

    assert answers[0].text == answers[1].text
    assert answers[0].status_code == answers[1].status_code
    for name in ("content-type", "x-steno-model", "retry-after", "x-should-retry"):
        assert answers[0].headers.get(name) == answers[1].headers.get(name)


def test_a_long_recording_is_cut_and_joined_as_in_one_process(one, two, golden):
    answers = [served.post(**form(wav(long_speech(golden)), response_format="verbose_json")) for served in (one, two)]

    assert answers[0].json()["transcribed_seconds"] > LONGEST
    assert answers[0].json() == answers[1].json()


IDENTIFIED = {
    "short": form(wav(tone(64_001)), language="auto", response_format="verbose_json"),
    "narrowed": form(wav(tone(64_000)), **{"languages[]": ["de", "fr"]}),
    "streamed": form(wav(tone(63_999)), stream="true", response_format="verbose_json"),
    "by channel": form(stereo(), multichannel="true", response_format="verbose_json"),
    "named": form(wav(tone(64_001)), language="de"),
    "failing": form(wav(tone(FAIL_SAMPLES))),
}


@pytest.fixture(scope="module")
def identifying():
    models = {"model": "prompted.nemo", "language_identifier": "finder.nemo", "max_utterance_seconds": LONGEST}
    with serving(**models) as one, serving(**models, http_processes=2) as two:
        wait_until_all_answer(two)
        yield one, two


@pytest.mark.parametrize("kind", IDENTIFIED)
def test_languages_are_identified_as_in_one_process(identifying, kind):
    answers = [served.post(**IDENTIFIED[kind]) for served in identifying]

    assert answers[0].text == answers[1].text
    assert answers[0].status_code == answers[1].status_code


def test_languages_of_parts_are_identified_as_in_one_process(identifying, golden):
    answers = [served.post(**form(wav(long_speech(golden)), response_format="verbose_json")) for served in identifying]

    assert answers[0].json()["language_source"] == "audio"
    assert len(answers[0].json()["segments"]) > 1
    assert answers[0].json() == answers[1].json()
    admission = identifying[1].server.dispatcher.admission
    wait_for(lambda: admission.requests == 0 and not admission.backlog.entries)


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
        ("GET", "/v1/admin/models"),
        ("GET", "/"),
        ("GET", "/openapi.json"),
    ],
)
def test_all_other_requests_are_answered_as_by_one_process(one, two, method, path):
    answers = [served.client.request(method, path) for served in (one, two)]

    bodies = [re.sub(r'"created":\d+', "", told.text) for told in answers]
    assert bodies[0] == bodies[1]
    assert answers[0].status_code == answers[1].status_code
    assert {*answers[0].headers} == {*answers[1].headers}


def test_metrics_are_sums_and_each_request_is_counted_once(two):
    with ThreadPoolExecutor(8) as threads:

        def send(_: int) -> int:
            with httpx.Client(base_url=two.client.base_url, timeout=PATIENCE, trust_env=False) as client:
                return client.post("/v1/audio/translations", **form(wav(tone(2000)), model="nobody")).status_code

        assert set(threads.map(send, range(24))) == {404}

    assert two.metric('steno_http_requests_total{endpoint="translations",status="404"}') >= 24


def test_a_worker_that_is_killed_takes_only_its_own_requests_with_it():
    with serving(http_processes=2) as served:
        wait_until_all_answer(served)
        assert served.post(**form(wav(tone(2000)))).status_code == 200
        before = served.metric("steno_http_requests_total")
        served.hold_engine()
        lengths = range(2000, 2040)
        sent = [posted(served.server.port, tone(length)) for length in lengths]
        dispatcher, admission = served.server.dispatcher, served.server.dispatcher.admission
        wait_for(lambda: len(dispatcher.admission.backlog.entries) == len(lengths))
        killed, kept = workers(served)

        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: killed not in workers(served) and len(workers(served)) == 2)
        withdrawn = len(lengths) - len(admission.backlog.entries)
        assert admission.requests == len(lengths) - withdrawn
        served.release_engine()

        told = [answer(connection) for connection in sent]
        assert told.count(b"") == withdrawn
        assert all(f'"{length} '.encode() in one for length, one in zip(lengths, told, strict=True) if one)
        assert kept in workers(served)
        wait_until_all_answer(served)
        assert served.post(**form(wav(tone(2000)))).status_code == 200
        assert served.metric("steno_http_requests_total") >= before + len(lengths) - withdrawn
        assert served.metric("steno_http_process_restarts_total") == 1
        wait_for(lambda: admission.requests == admission.stored_bytes == 0)
        assert admission.backlog.seconds == 0


def test_workers_end_with_the_main_process(tmp_path: Path):
    with steno_serve(tmp_path / "log", "--model", "stub.nemo", "--http-processes", "2", engine=STUB_ENGINE) as served:
        wait_for(lambda: served.metric("steno_http_processes") == 2)
        pids = [one["pid"] for one in served.events("worker started")]
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)

        served.process.kill()

        wait_for(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_drain_answers_what_was_accepted_and_refuses_the_rest():
    with serving(http_processes=2) as served:
        wait_until_all_answer(served)
        served.hold_engine()
        sent = [posted(served.server.port, tone(2000 + number)) for number in range(8)]
        wait_for(lambda: len(served.server.dispatcher.admission.backlog.entries) == 8)

        served.stop()
        wait_for(lambda: served.client.get("/readyz").status_code == 503)
        refused = served.post(**form(wav(tone(2000))))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        served.release_engine()

        assert all(b"200 OK" in answer(connection) for connection in sent)
        wait_for(lambda: not workers(served))
    assert not served.outcome


@pytest.mark.long
def test_a_second_signal_gives_up_what_waits():
    with serving(http_processes=2) as served:
        served.hold_engine()
        connection = posted(served.server.port, tone(2000))
        wait_for(lambda: len(served.server.dispatcher.admission.backlog.entries) == 1)

        served.stop()
        served.stop()

        assert b"engine_lost" in answer(connection)
        wait_for(lambda: not workers(served))


def test_limits_of_a_key_hold_over_all_workers():
    entry = f"alice:{hashlib.sha256(KEY.encode()).hexdigest()}"
    with serving(http_processes=2, api_keys=entry, requests_per_minute_per_key=10) as served:

        def send(_: int) -> httpx.Response:
            headers = {"authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=served.client.base_url, timeout=PATIENCE, trust_env=False) as client:
                return client.post("/v1/audio/transcriptions", **form(wav(tone(2000))), headers=headers)

        wait_until_all_answer(served)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(send, range(24)))

        codes = [one.status_code for one in answers]
        assert codes.count(429) == 24 - codes.count(200)
        assert 10 <= codes.count(200) <= 12  # the bucket is refilled meanwhile
        assert {int(one.headers["x-ratelimit-limit-requests"]) for one in answers} == {10}
        refused = next(one for one in answers if one.status_code == 429)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert int(refused.headers["retry-after"]) >= 1


def test_a_worker_that_only_refuses_says_what_is_left_of_a_limit_too():
    entry = f"alice:{hashlib.sha256(KEY.encode()).hexdigest()}"
    with serving(http_processes=2, api_keys=entry, requests_per_minute_per_key=1) as served:
        wait_until_all_answer(served)
        answers = [
            httpx.post(
                served.client.base_url.join("/v1/audio/transcriptions"),
                **form(wav(tone(2000))),
                headers={"authorization": f"Bearer {KEY}"},
                trust_env=False,
            )
            for _ in range(12)
        ]

    assert [one.status_code for one in answers] == [200, *[429] * 11]
    assert {one.headers["x-ratelimit-remaining-requests"] for one in answers} == {"0"}


def test_gate_2_refuses_what_the_queue_has_no_room_for():
    with serving(http_processes=2, max_queued_audio_seconds=3.0) as served:
        wait_until_all_answer(served)
        served.hold_engine()
        first = posted(served.server.port, tone(2 * SAMPLE_RATE))
        wait_for(lambda: served.server.dispatcher.admission.backlog.seconds == 2)

        refused = served.post(**form(wav(tone(2 * SAMPLE_RATE))))

        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert "2 s of audio are waiting" in refused.json()["error"]["message"]
        served.release_engine()
        assert b"200 OK" in answer(first)


@pytest.mark.long
def test_a_client_that_leaves_frees_its_place_in_the_main_process():
    with serving(http_processes=2) as served:
        served.hold_engine()
        connection = posted(served.server.port, tone(2000))
        admission = served.server.dispatcher.admission
        wait_for(lambda: len(admission.backlog.entries) == 1)

        connection.close()

        wait_for(lambda: admission.requests == 0 and not admission.backlog.entries)
        served.release_engine()


@pytest.mark.long
def test_connections_are_limited_over_all_workers():
    with serving(http_processes=2, max_connections=8, keep_alive_seconds=60) as served:
        wait_until_all_answer(served)
        served.client.close()
        opened, refused = [], 0
        for _ in range(30):
            connection = socket.create_connection(("127.0.0.1", served.server.port), PATIENCE)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: any\r\n\r\n")
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
        served.client = httpx.Client(base_url=f"http://127.0.0.1:{served.server.port}", timeout=PATIENCE)
        wait_for(lambda: served.client.get("/healthz").status_code == 200)
