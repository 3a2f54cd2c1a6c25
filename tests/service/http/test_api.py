"""The API over a real socket, with a stub engine behind it."""

import concurrent.futures
import io
import os
import socket
import threading

import httpx
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.stub_engine import CRASH_SAMPLES, FAIL_SAMPLES, SAMPLE_RATE, transcript
from service.http.routes import transcriptions
from tests.service.http.test_connection import answer_from, connected
from tests.service.serving import form, post_bytes, serving, tone, wait_for, wav

SECOND = tone(SAMPLE_RATE)


@pytest.fixture(scope="module")
def service():
    with serving(max_upload_bytes=4_000_000, max_audio_seconds=20.0) as served:
        yield served


def error(answer: httpx.Response) -> dict:
    """The fields of an error answer, which must have the one shape."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return body["error"]


def test_a_recording_becomes_text(service):
    answer = service.post(**form(wav(SECOND)))

    assert answer.status_code == 200
    assert answer.json() == {"text": transcript(SECOND).text, "usage": {"type": "duration", "seconds": 1.0}}


@pytest.mark.parametrize("seconds", [1, 20], ids=["decoded without a thread", "decoded in a thread"])
def test_16_bit_pcm_becomes_text(service, seconds):
    samples = np.round(tone(seconds * SAMPLE_RATE) * 2**15) / 2**15

    answer = service.post(**form(wav(samples, subtype="PCM_16")))

    assert answer.json()["text"] == transcript(samples.astype(np.float32)).text


def test_fields_may_come_in_any_order_and_unknown_ones_are_ignored(service):
    parts = [
        ("file", ("a", wav(SECOND))),
        ("unheard_of", (None, "1")),
        ("timestamp_granularities[]", (None, "segment")),  # which json does not have
        ("response_format", (None, "json")),
        ("language", (None, "")),
        ("model", (None, "stub")),
    ]

    for order in (parts, parts[::-1]):
        assert service.post(files=order).status_code == 200


def test_the_times_of_stages_are_in_a_header(service):
    answer = service.post(**form(wav(SECOND)))

    stages = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert list(stages) == ["receive", "decode", "queue", "infer"]
    assert all(float(milliseconds) >= 0 for milliseconds in stages.values())
    assert service.metric('steno_stage_duration_seconds_count{stage="respond"}') >= 1


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1.2_3", True), ("no spaces", False), ("x" * 129, False), ("<script>", False)]
)
def test_a_safe_request_id_is_kept_on_every_answer(service, given, kept):
    for path in ("/v1/models", "/nowhere", "/healthz"):
        answer = service.client.get(path, headers={"x-request-id": given})

        assert (answer.headers["x-request-id"] == given) == kept


def flac_of_silence(seconds: float) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(seconds * 8000), np.int16), 8000, format="FLAC")
    return file.getvalue()


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (b"", {"audio_too_short", "unsupported_format", "invalid_audio"}),
        (wav(tone(160)), {"audio_too_short"}),
        (wav(np.full(16_000, np.nan, np.float32)), {"invalid_audio"}),
        (flac_of_silence(30), {"audio_too_long"}),
        (np.random.default_rng(0).bytes(5000), {"unsupported_format", "invalid_audio"}),
    ],
    ids=["an empty file", "a hundredth of a second", "no numbers", "silence over the limit", "random bytes"],
)
def test_bad_audio_is_a_typed_error_and_the_server_lives_on(service, body, codes):
    answer = service.post(**form(body, "speech.wav"))

    assert (answer.status_code, error(answer)["param"]) == (400, "file")
    assert error(answer)["code"] in codes
    assert service.post(**form(wav(SECOND))).status_code == 200


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"timestamp_granularities[]": "word"}, "unsupported_value", "timestamp_granularities"),
        ({"response_format": "yaml"}, "invalid_value", "response_format"),
        ({"response_format": "diarized_json"}, "unsupported_value", "response_format"),
        ({"temperature": "hot"}, "invalid_value", "temperature"),
        ({"temperature": "7"}, "invalid_value", "temperature"),
        ({"timestamp_granularities[]": "phoneme"}, "invalid_value", "timestamp_granularities"),
        ({"stream": "maybe"}, "invalid_value", "stream"),
        ({"language": "klingon"}, "invalid_value", "language"),
        ({"subtitle_lines": "0"}, "invalid_value", "subtitle_lines"),
        ({"multichannel": "both"}, "invalid_value", "multichannel"),
        ({"include[]": "speakers"}, "invalid_value", "include"),
        ({"include[]": "logprobs", "response_format": "srt"}, "unsupported_value", "include"),
    ],
)
def test_a_wrong_field_is_named(service, fields, code, param):
    answer = service.post(**form(wav(SECOND), **fields))

    assert (answer.status_code, error(answer)["code"], error(answer)["param"]) == (400, code, param)
    assert "constrained" not in error(answer)["message"]  # a name that pydantic gives


def test_a_language_that_the_model_does_not_speak_is_refused_by_name():
    with serving(languages="en") as service:
        spoken = service.post(**form(wav(SECOND), language="en-US", response_format="verbose_json"))
        refused = service.post(**form(wav(SECOND), language="de"))

    assert spoken.json()["language"] == "english"
    assert refused.status_code == 400
    assert (error(refused)["code"], error(refused)["param"]) == ("unsupported_value", "language")
    assert error(refused)["message"] == "The model 'stub' does not speak 'de' (german); it speaks 'en' (english)."


def test_a_model_that_is_not_named_is_the_default_and_the_answer_names_it(service):
    answers = [service.post(files={"file": ("a", wav(SECOND))}, data=data) for data in ({}, {"model": ""})]
    wrong = service.post(**form(b"no audio"))

    assert [answer.status_code for answer in answers] == [200, 200]
    assert {answer.headers["x-steno-model"] for answer in (*answers, wrong)} == {"stub"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/models", "/openapi.json", "/", "/docs"])
def test_head_is_get_without_a_body(service, path):
    head, get = service.client.head(path), service.client.get(path)

    assert head.status_code == get.status_code == 200
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""
    assert service.client.head("/nowhere").status_code == 404
    assert service.client.head("/v1/audio/transcriptions").status_code == 405


@pytest.mark.parametrize(
    ("path", "allowed"), [("/v1/audio/jobs", "GET, POST"), ("/v1/audio/translations", "POST"), ("/healthz", "GET")]
)
def test_allowed_methods_are_in_the_answer(service, path, allowed):
    assert service.client.put(path).headers["allow"] == allowed


def test_routes_that_need_a_key_say_so(service):
    described = service.client.get("/openapi.json").json()
    keys = {path: method.get("security") for path, methods in described["paths"].items() for method in methods.values()}

    assert keys["/v1/audio/transcriptions"] == keys["/v1/models"] == [{"Key": []}]
    assert keys["/healthz"] is None


def test_a_form_without_a_file_says_so(service):
    answer = service.post(data={"model": "whisper-1"}, files={"other": ("a", b"b")})
    as_list = service.post(files={"file[]": ("a", wav(SECOND))})
    as_text = service.post(files={"file": (None, "not a file"), "model": (None, "whisper-1")})

    assert (error(answer)["code"], error(answer)["param"]) == ("missing_required_parameter", "file")
    assert error(as_list) == error(answer)
    assert error(as_text)["code"] == "missing_required_parameter"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "multipart/form-data; boundary=x"),
        (b"", "application/json"),
        (b"anything", "multipart/form-data"),
        (b"anything", "multipart/form-data; boundary=x"),
        (
            b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n',
            "multipart/form-data; boundary=x",
        ),
        (b"--x\r\n" + b"a: b\r\n" * 50, "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\nen\r\n--x--", "multipart/form-data; boundary=x"),
        (b"--x\r\ncontent-disposition: form-data\r\n\r\nen\r\n--x--", "multipart/form-data; boundary=x"),
        (
            b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n\r\n' * 9000 + b"--x--",
            "multipart/form-data; boundary=x",
        ),
        (b"", ""),
    ],
)
def test_a_body_that_is_not_a_form_is_malformed(service, body, content_type):
    answer = service.post(content=body, headers={"content-type": content_type})

    assert answer.status_code == 400
    assert error(answer)["code"] == "malformed_body"


def test_two_files_are_one_too_many(service):
    answer = service.post(
        files=[("file", ("a", wav(SECOND))), ("file", ("b", wav(SECOND)))], data={"model": "whisper-1"}
    )

    assert answer.status_code == 400


def test_a_file_in_an_unknown_field_is_ignored_like_any_other_field(service):
    files = [("cover", ("a", b"x" * 2_000_000)), ("file", ("b", wav(SECOND))), ("notes", ("c", b"y"))]

    answer = service.post(files=files, data={"model": "whisper-1"})

    assert answer.status_code == 200
    assert answer.json()["text"] == transcript(SECOND).text


def test_a_field_that_is_sent_as_a_file_is_named(service):
    files = {"file": ("a", wav(SECOND)), "language": ("b", b"en")}

    answer = service.post(files=files, data={"model": "whisper-1"})

    assert (answer.status_code, error(answer)["param"]) == (400, "language")


@pytest.mark.parametrize("fields", [{"prompt": "p" * 300_000}, {f"x{n}": "y" * 6_000 for n in range(50)}])
def test_fields_that_are_too_large_together_are_refused(service, fields):
    answer = service.post(**form(wav(SECOND), **fields))

    assert answer.status_code == 413
    assert error(answer)["code"] == "fields_too_large"
    assert answer.headers["x-should-retry"] == "false"
    assert service.server.dispatcher.admission.stored_bytes == 0


def test_fields_that_are_small_enough_together_are_taken(service):
    assert service.post(**form(wav(SECOND), prompt="p" * 200_000)).status_code == 200


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 400))
def test_a_preamble_before_the_first_boundary_is_skipped_however_it_is_split(service, preamble, size):
    upload = httpx.Request("POST", "http://any", **form(wav(SECOND)))
    body = preamble + b"\r\n" + upload.read()[:2000] if preamble else upload.read()[:2000]
    body += upload.read()[2000:]
    pieces = [body[begin : begin + size] for begin in range(0, 4000, size)] + [body[-(-4000 // size) * size :]]

    answer = service.post(content=iter(pieces), headers={"content-type": upload.headers["content-type"]})

    assert answer.status_code == 200


def test_texts_and_names_may_have_the_charset_of_a_terminal(service):
    body = (
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="caf\xe9.wav"\r\n\r\n'
        + wav(SECOND)
        + b"\r\n--x\r\n"
        b'content-disposition: form-data; name="prompt"\r\n\r\ncaf\xe9\r\n--x--'
    )

    assert service.post(content=body, headers={"content-type": "multipart/form-data; boundary=x"}).status_code == 200


def test_a_long_preamble_is_refused(service):
    kind = {"content-type": "multipart/form-data; boundary=x"}

    answer = service.post(content=b"x" * 1_000_000, headers=kind)

    assert (answer.status_code, error(answer)["code"]) == (400, "malformed_body")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/audio/transcriptions/", 404),
        ("GET", "/v1/audio/transcriptions", 405),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_the_frameworks_errors_have_our_shape(service, method, path, status):
    answer = service.client.request(method, path)

    assert answer.status_code == status
    assert error(answer)["type"] == "invalid_request_error"


def test_an_utterance_that_breaks_its_batch_is_a_500_that_is_not_retried(service):
    answer = service.post(**form(wav(tone(FAIL_SAMPLES))))

    assert answer.status_code == 500
    assert answer.headers["x-should-retry"] == "false"
    assert error(answer)["code"] == "internal_error"
    assert "ArithmeticError" not in answer.text


def test_requests_are_counted_by_what_became_of_them():
    with serving() as service:
        service.post(**form(wav(SECOND)))
        service.post(**form(b"junk"), headers={"x-stainless-retry-count": "1", "x-stainless-lang": "python"})
        service.client.post("/v1/audio/translations", **form(wav(SECOND)))

        counted = 'steno_http_requests_total{endpoint="transcriptions",method="POST",status="%d"}'
        assert service.metric(counted % 200) == 1
        assert service.metric(counted % 400) == 1
        assert service.metric('steno_http_requests_total{endpoint="translations"}') == 1
        assert service.metric('steno_errors_total{kind="unsupported_format"}') == 1
        assert service.metric('steno_http_client_retries_total{lang="python"}') == 1
        assert service.metric('steno_audio_seconds_total{outcome="ok"}') == 1.0
        assert service.metric("steno_words_total") == 2


def test_a_client_that_leaves_frees_its_place_whether_it_waits_or_runs():
    with serving() as service:
        service.hold_engine()
        connections = [socket.create_connection(("127.0.0.1", service.server.port)) for _ in range(2)]
        for connection in connections:
            connection.sendall(post_bytes(service.server.port, wav(SECOND)))
        wait_for(lambda: service.metric("steno_queue_depth") == 1)  # and one runs

        for connection in connections:
            connection.close()

        wait_for(lambda: service.metric('steno_audio_seconds_total{outcome="cancelled"}') == 2.0)
        assert service.metric("steno_queue_depth") == 0
        assert service.server.dispatcher.admission.requests == 0
        gone = 'steno_http_requests_total{endpoint="transcriptions",method="POST",status="499"}'
        assert service.metric(gone) == 2
        service.release_engine()
        assert service.post(**form(wav(SECOND))).status_code == 200


def test_an_upload_takes_no_room_once_it_is_decoded():
    with serving() as service, concurrent.futures.ThreadPoolExecutor(1) as pool:
        service.hold_engine()
        answer = pool.submit(service.post, **form(wav(SECOND)))
        wait_for(lambda: service.server.dispatcher.admission.backlog.seconds > 0)

        assert service.server.dispatcher.admission.requests == 1
        assert service.server.dispatcher.admission.stored_bytes == 0
        service.release_engine()
        assert answer.result().json()["usage"]["seconds"] == 1.0
    assert service.server.dispatcher.admission.stored_bytes == 0


@pytest.mark.parametrize(("device", "lower"), [("cpu", 10), ("auto", 10), ("cuda:0", 0)])
def test_decoding_and_computing_on_processors_have_a_lower_priority(device, lower):
    here = os.getpriority(os.PRIO_PROCESS, 0)
    with serving(device=device) as service:
        assert service.post(**form(wav(SECOND))).status_code == 200
        threads = {thread.name: os.getpriority(os.PRIO_PROCESS, thread.native_id) for thread in threading.enumerate()}

        assert os.getpriority(os.PRIO_PROCESS, service.server.fleet.engines[0].pid) == here + lower
    assert threads["decode_0"] == here + 10
    assert threads["MainThread"] == here


def test_draining_answers_what_was_accepted_and_refuses_the_rest():
    with serving() as service, concurrent.futures.ThreadPoolExecutor(16) as pool:
        service.hold_engine()
        accepted = [pool.submit(service.post, **form(wav(SECOND))) for _ in range(3)]
        wait_for(lambda: service.metric("steno_queue_depth") == 2)

        service.stop()
        wait_for(lambda: service.metric("steno_draining") == 1)
        refused = service.post(**form(wav(SECOND)))
        alive = service.client.get("/healthz")
        service.release_engine()

        assert (refused.status_code, error(refused)["code"]) == (503, "draining")
        assert alive.status_code == 200
        assert [answer.result().status_code for answer in accepted] == [200, 200, 200]


def test_an_utterance_that_kills_the_engine_twice_is_an_error_and_its_batch_is_answered():
    with serving() as service, concurrent.futures.ThreadPoolExecutor(16) as pool:
        service.hold_engine()
        first = pool.submit(service.post, **form(wav(SECOND)))
        wait_for(lambda: service.metric("steno_queue_wait_seconds_count") == 1)
        poison = pool.submit(service.post, **form(wav(tone(CRASH_SAMPLES))))
        neighbours = [pool.submit(service.post, **form(wav(SECOND))) for _ in range(5)]
        wait_for(lambda: service.metric("steno_queue_depth") == 6)
        service.release_engine()

        lost = poison.result()
        assert (lost.status_code, error(lost)["code"]) == (503, "engine_lost")
        assert lost.headers["x-should-retry"] == "false"
        assert [answer.result().json()["text"] for answer in (first, *neighbours)] == [transcript(SECOND).text] * 6
        assert service.metric('steno_engine_restarts_total{reason="exit"}') == 2
        assert service.metric('steno_batches_total{result="lost"}') == 2


def test_nothing_is_accepted_before_the_model_is_loaded():
    with serving(wait_ready=False, model="endless") as service:
        answer = service.post(**form(wav(SECOND)))
        ready = service.client.get("/readyz")

    assert (answer.status_code, error(answer)["code"]) == (503, "model_loading")
    assert int(answer.headers["retry-after"]) >= 1
    assert (ready.status_code, ready.json()) == (503, {"status": "loading", "models": {"endless": "loading"}})


@pytest.mark.parametrize(("silence", "whole"), [(0.2, 600.0), (30.0, 0.2)])
def test_a_body_that_stalls_or_arrives_too_slowly_is_ended(silence, whole, monkeypatch):
    monkeypatch.setattr(transcriptions, "BODY_SECONDS", whole)
    with serving(receive_timeout_seconds=silence) as service, connected(service) as connection:
        connection.sendall(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n"
            b"content-type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
        )
        answer = answer_from(connection)

    assert (answer.status_code, error(answer)["code"]) == (408, "request_timeout")


@pytest.mark.program("promtool")
def test_promtool_finds_no_fault(service):
    import subprocess

    service.post(**form(wav(SECOND)))
    service.post(**form(b""))

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=service.client.get("/metrics").content, capture_output=True
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout + checked.stderr == b""
