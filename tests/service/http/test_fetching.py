"""A recording may be named by a URL, where the operator allows its host, and nowhere else."""

import http.server
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from benchmarks.stub_engine import transcript
from service.settings import Settings, SettingsError
from tests.service.http.test_bodies import CLIP, PATH, SECOND, error
from tests.service.serving import form, listening, serving, wait_for


class Store(http.server.BaseHTTPRequestHandler):
    """A server of recordings, and of pages that are not audio."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, self.headers))
        if self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(CLIP[:1000])
            self.wfile.flush()
            self.server.may_end.wait(60)
            self.close_connection = True
            return
        if self.path.startswith("/moved/"):
            self.answer(302, b"", location=self.server.places[self.path])
        elif self.path == "/clip.wav":
            self.answer(200, CLIP, kind="audio/wav")
        elif self.path == "/samples":
            self.answer(200, (SECOND * 32767).astype("<i2").tobytes(), kind="audio/pcm; rate=16000; channels=1")
        elif self.path == "/large":
            self.answer(200, CLIP * 8)
        elif self.path == "/page":
            self.answer(200, b"<html>", kind="text/html")
        else:
            self.answer(404, b"none")

    def answer(self, status: int, body: bytes, kind: str = "application/octet-stream", location: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if location:
            self.send_header("location", location)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def store():
    with listening(Store) as server:
        server.asked, server.places, server.may_end = [], {}, threading.Event()
        yield server
        server.may_end.set()


@pytest.fixture(scope="module")
def serve(store, tmp_path_factory):
    limits = {"max_upload_bytes": 400_000, "receive_timeout_seconds": 1.0}
    limits["jobs_folder"] = tmp_path_factory.mktemp("jobs")
    with serving(url_hosts=f"{store.origin},media.example", **limits) as served:
        yield served


def ask(served, url: object, **fields: object) -> httpx.Response:
    return served.client.post(PATH, json={"url": url, **fields})


def test_a_recording_is_fetched_and_transcribed_as_if_it_were_sent(serve, store):
    options = {"model": "whisper-1", "response_format": "verbose_json", "timestamp_granularities": ["word", "segment"]}
    answer = ask(serve, f"{store.origin}/clip.wav", language="en", **options)

    sent = serve.post(files={"file": CLIP}, data=options | {"language": "en"})
    assert answer.status_code == 200
    assert answer.json() == sent.json()
    headers = store.asked[-1][1]
    assert headers["user-agent"].startswith("steno/")
    assert headers["authorization"] is None


def test_the_media_type_of_the_answer_describes_raw_samples(serve, store):
    assert ask(serve, f"{store.origin}/samples").json()["usage"]["seconds"] == 1


def test_a_stream_and_its_options_as_json_has_them(serve, store):
    rule = {"type": "server_vad", "threshold": 0.5}
    answer = ask(serve, f"{store.origin}/clip.wav", stream=True, chunking_strategy=rule, temperature=0, prompt=None)

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "transcript.text.done" in answer.text


@pytest.mark.parametrize("path", [PATH, "/v1/audio/jobs"])
def test_null_counts_as_left_out_in_every_option(serve, store, path):
    content = serve.client.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]["content"]
    body = dict.fromkeys(content["application/json"]["schema"]["properties"]) | {"url": f"{store.origin}/clip.wav"}

    assert serve.client.post(path, json=body).status_code == (200 if path == PATH else 202)
    assert error(serve.client.post(path, json=body | {"url": None})) == (400, "missing_required_parameter", "url")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"response_format": "xml"}, (400, "invalid_value", "response_format")),
        ({"stream": {"a": 1}}, (400, "invalid_value", "stream")),
        ({"chunking_strategy": {"type": "x"}}, (400, "invalid_value", "chunking_strategy")),
        ({"model": 7}, (404, "model_not_found", "model")),
        ({"model": "none"}, (404, "model_not_found", "model")),
        ({"response_format": ["text", "json"]}, (400, "invalid_value", "response_format")),
        ({"language": ["de", "en"]}, (400, "invalid_value", "language")),
        ({"languages": ["de", None]}, (400, "invalid_value", "languages")),
        ({"chunking_strategy": "null and void"}, (400, "invalid_value", "chunking_strategy")),
    ],
)
def test_a_wrong_option_is_named(serve, store, fields, fault):
    assert error(ask(serve, f"{store.origin}/clip.wav", **fields)) == fault


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"{", (400, "malformed_body", None)),
        (b"[]", (400, "malformed_body", None)),
        (b"\xff", (400, "malformed_body", None)),
        (b"{}", (400, "missing_required_parameter", "url")),
        (b'{"url": 7}', (400, "invalid_value", "url")),
        (b'{"url": ""}', (400, "url_not_allowed", "url")),
        (b'{"url": "' + b"x" * 300_000 + b'"}', (413, "fields_too_large", None)),
    ],
)
def test_a_body_that_is_not_a_request_is_refused(serve, body, fault):
    answer = serve.client.post(PATH, content=body, headers={"content-type": "application/json"})

    assert error(answer) == fault


def test_without_a_list_of_hosts_no_url_is_fetched(store):
    asked = len(store.asked)
    with serving() as served:
        refused = ask(served, f"{store.origin}/clip.wav")

        assert error(refused) == (400, "url_not_allowed", "url")
        assert "STENO_URL_HOSTS" in refused.json()["error"]["message"]
    assert len(store.asked) == asked


@pytest.mark.parametrize("url", ["http://media.example/clip.wav", "https://other.example/clip.wav", "https://["])
def test_other_urls_are_refused(serve, url):
    assert error(ask(serve, url)) == (400, "url_not_allowed", "url")


def test_redirects_are_followed_and_checked_like_the_url(serve, store):
    store.places |= {
        "/moved/here": "../clip.wav",
        "/moved/twice": f"{store.origin}/moved/here",
        "/moved/inside": "http://127.0.0.1:1/clip.wav",
        "/moved/metadata": "https://169.254.169.254/latest/meta-data/",
        "/moved/file": "file:///etc/passwd",
        "/moved/nowhere": "http://[",
        "/moved/round": "/moved/round",
    }

    def at(path: str) -> httpx.Response:
        return ask(serve, store.origin + path)

    assert at("/moved/here").json()["text"] == at("/moved/twice").json()["text"] == transcript(SECOND).text
    for path in ("/moved/inside", "/moved/metadata", "/moved/file"):
        assert error(at(path)) == (400, "url_not_allowed", "url")
    assert error(at("/moved/nowhere")) == (400, "url_unreachable", "url")
    before = len(store.asked)
    assert error(at("/moved/round")) == (400, "url_unreachable", "url")
    assert len(store.asked) == before + 6


def test_the_error_for_a_failed_fetch_has_its_reason(serve, store):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        missing = ask(serve, f"{store.origin}/missing")
        assert error(missing) == (400, "url_unreachable", "url")
        assert "404" in missing.json()["error"]["message"]
        assert error(ask(serve, f"{store.origin}/page"))[:2] == (400, "unsupported_format")
        with serving(url_hosts=f"http://127.0.0.1:{port}", receive_timeout_seconds=0.3) as served:
            assert error(ask(served, f"http://127.0.0.1:{port}/")) == (400, "url_unreachable", "url")


def test_limits_are_those_of_uploads(serve, store):
    assert error(ask(serve, f"{store.origin}/large"))[:2] == (413, "file_too_large")
    assert error(ask(serve, f"{store.origin}/endless")) == (400, "url_unreachable", "url")  # it stops sending
    admission = serve.server.dispatcher.admission
    wait_for(lambda: admission.requests == admission.stored_bytes == 0)


def test_a_client_that_leaves_stops_the_fetch(store):
    with serving(url_hosts=store.origin) as served, ThreadPoolExecutor(1) as pool:
        url = f"{store.origin}/endless"
        leaving = pool.submit(served.client.post, PATH, json={"url": url}, timeout=0.5)
        wait_for(lambda: served.server.dispatcher.admission.requests == 1)
        assert isinstance(leaving.exception(), httpx.TimeoutException)
        wait_for(lambda: served.server.dispatcher.admission.requests == 0)
        assert served.post(**form(CLIP)).status_code == 200


def test_invalid_hosts_stop_the_start():
    with pytest.raises(SettingsError, match=r"STENO_URL_HOSTS.*neither a host"):
        Settings.read({"url_hosts": "media.example/path"})
