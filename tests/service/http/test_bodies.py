"""A recording may be the body itself; options are parameters of the query then."""

import contextlib
import gzip
import socket

import httpx
import pytest

from benchmarks.stub_engine import SAMPLE_RATE, transcript
from service.http.wire import upload
from tests.service.serving import PATIENCE, form, serving, tone, wav

SECOND = tone(SAMPLE_RATE)
CLIP = wav(SECOND)
PATH = "/v1/audio/transcriptions"


@pytest.fixture(scope="module")
def service():
    with serving() as served:
        yield served


def send(service, body: object, content_type: str | None = "audio/wav", **query: object) -> httpx.Response:
    headers = {} if content_type is None else {"content-type": content_type}
    return service.client.post(PATH, content=body, headers=headers, params=query)


def error(answer: httpx.Response) -> tuple[int, str, str | None]:
    fault = answer.json()["error"]
    return answer.status_code, fault["code"], fault["param"]


@pytest.mark.parametrize(
    "kind", ["audio/wav", "audio/mpeg", "video/mp4", "application/octet-stream", "Audio/X-Any; a=b"]
)
def test_a_body_is_recognised_by_its_content_as_a_file_is(service, kind):
    answer = send(service, CLIP, kind, model="whisper-1")

    assert answer.status_code == 200
    assert answer.json() == service.post(**form(CLIP)).json()


def test_options_are_those_of_the_form(service):
    options = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"], "language": "en"}
    answer = send(service, CLIP, **options)

    assert answer.json() == service.post(files={"file": CLIP}, data=options).json()
    assert answer.json()["words"]
    streamed = send(service, CLIP, stream="true", model="whisper-1")
    assert streamed.headers["content-type"].startswith("text/event-stream")


def test_a_body_in_pieces_without_a_length_is_taken(service):
    pieces = (CLIP[begin : begin + 1000] for begin in range(0, len(CLIP), 1000))

    assert send(service, pieces).json()["text"] == transcript(SECOND).text


def test_bodies_of_two_megabytes_go_to_the_disk_and_come_back(service):
    samples = tone(40 * SAMPLE_RATE)

    assert send(service, wav(samples)).json()["text"] == transcript(samples).text


@pytest.mark.parametrize(
    "kind", [None, "", "application/x-www-form-urlencoded", "text/plain", "audio", "multipart/mixed"]
)
def test_the_error_for_another_media_type_lists_those_there_are(service, kind):
    answer = send(service, CLIP, kind)

    assert error(answer) == (400, "malformed_body", None)
    assert "Content-Type: audio/wav" in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "application/json", "audio/wav"])
def test_a_compressed_body_is_refused_as_one(service, kind):
    answer = service.post(content=gzip.compress(CLIP), headers={"content-type": kind, "content-encoding": "gzip"})

    assert error(answer) == (400, "malformed_body", None)
    assert "Content-Encoding: gzip" in answer.json()["error"]["message"]


def test_limits_are_those_of_uploads():
    with serving(max_upload_bytes=10_000, receive_timeout_seconds=0.5) as service:
        assert error(send(service, CLIP))[:2] == (413, "file_too_large")
        assert error(send(service, iter([CLIP])))[:2] == (413, "file_too_large")
        assert service.server.dispatcher.admission.stored_bytes == 0


@pytest.mark.parametrize(
    ("disposition", "is_file"),
    [
        (b"name=file; filename*=UTF-8''caf%C3%A9.wav", True),
        (b"name=file; FileName*=UTF-8''a.wav", True),
        (b"name=file; filename=a.wav; filename*=UTF-8''b.wav", True),
        (b'name="file; filename*=x"', False),
        (b"name=file", False),
    ],
)
def test_a_file_may_have_an_encoded_name_alone(service, disposition, is_file):
    body = b"--b\r\ncontent-disposition: form-data; " + disposition + b"\r\n\r\n" + CLIP + b"\r\n--b--\r\n"

    answer = send(service, body, "multipart/form-data; boundary=b")

    assert (answer.status_code == 200) == is_file


def test_a_body_that_comes_more_slowly_than_speech_is_ended(service, monkeypatch):
    """A byte now and then is never silent, and held a place among the requests for ten minutes."""
    monkeypatch.setattr(upload, "_GRACE_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", service.server.port), timeout=PATIENCE) as connection:
        connection.settimeout(0.02)
        head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ncontent-type: audio/wav\r\n"
        connection.sendall(head + b"content-length: 100000\r\n\r\n")
        answer = b""
        for _ in range(int(PATIENCE / 0.02)):
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(1 << 16)
                break

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"500 bytes a second" in answer


@pytest.mark.parametrize(("charset", "status"), [("UTF-8", 200), ("punycode", 400), ("undefined", 400), ("idna", 400)])
def test_a_form_has_no_other_charset_than_usual_ones(service, charset, status):
    """Python knows decoders that take a second for 200 KB, and one that always fails."""
    request = httpx.Request("POST", "http://any", **form(CLIP, prompt="a-" + "z" * 1000))
    kind = f"{request.headers['content-type']}; charset={charset}"

    assert send(service, request.read(), kind).status_code == status
