"""A request without room is refused by its headers, before it reaches the framework and before its body."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.stub_engine import SAMPLE_RATE
from tests.service.http.test_connection import answer_from, connected
from tests.service.serving import form, serving, tone, wait_for, wav

SECOND = wav(tone(SAMPLE_RATE))
KEY = "a-key-of-some-length"
HEAD = (
    "POST {path} HTTP/1.1\r\nhost: [::1]\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: {size}\r\n"
)


@pytest.fixture(scope="module")
def full():
    """A service that is full, and a key for it."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    limits = {"max_requests": 1, "requests_per_minute_per_key": 10}
    with serving(api_keys=[f"someone:{digest}"], **limits) as service, ThreadPoolExecutor(1) as pool:
        service.hold_engine()
        headers = {"authorization": f"Bearer {KEY}"}
        first = pool.submit(service.client.post, "/v1/audio/transcriptions", headers=headers, **form(SECOND))
        wait_for(lambda: service.metric("steno_queue_wait_seconds_count") == 1)
        yield service
        service.release_engine()
        assert first.result().status_code == 200


def answer(service, path="/v1/audio/transcriptions", size=1000, **headers):
    """The answer to headers whose body never comes."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    with connected(service) as connection:
        connection.sendall((HEAD.format(path=path, size=size) + lines + "\r\n").encode())
        found = answer_from(connection)
    return found.status_code, found.json()["error"], found.headers


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations"])
def test_a_full_service_refuses_before_the_body_comes(full, path, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("it came to a route")

    monkeypatch.setattr("service.http.routes.transcriptions.receive_form", fail)

    status, error, headers = answer(full, path, authorization=f"Bearer {KEY}", x_request_id="mine")

    assert (status, error["code"], error["type"]) == (503, "overloaded", "server_error")
    assert 1 <= int(headers["retry-after"]) <= 60
    assert (headers["x-should-retry"], headers["x-request-id"]) == ("true", "mine")


def test_a_refusal_costs_a_key_none_of_its_requests(full):
    answers = [answer(full, authorization=f"Bearer {KEY}") for _ in range(3)]

    assert [status for status, _, _ in answers] == [503] * 3
    left = [int(headers["x-ratelimit-remaining-requests"]) for _, _, headers in answers]
    assert left == sorted(left)  # some may come back meanwhile


def test_a_request_without_a_key_is_401_even_if_the_service_is_full(full):
    assert answer(full)[0] == 401
    assert answer(full, authorization="Bearer wrong")[0] == 401


def test_an_upload_that_is_too_large_is_refused_before_the_body_comes(full):
    status, error, headers = answer(full, size=1 << 40, authorization=f"Bearer {KEY}")

    assert (status, error["code"], headers["x-should-retry"]) == (413, "file_too_large", "false")


def test_refusals_are_counted_like_all_answers(full):
    refused = 'steno_http_requests_total{endpoint="transcriptions",status="503"}'
    before = full.metric(refused)

    answer(full, authorization=f"Bearer {KEY}")

    wait_for(lambda: full.metric(refused) == before + 1)
    assert full.metric('steno_queue_rejected_total{reason="full"}') >= 1


def test_requests_without_uploads_pass_the_gate(full):
    assert full.client.get("/healthz").status_code == 200
    assert full.client.get("/v1/audio/transcriptions").status_code == 405
