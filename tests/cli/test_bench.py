"""`steno bench` counts correctly what happens at a real server."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import main
from cli.load import poisson
from tests.service.serving import form, serving, tone, wav


@pytest.fixture(scope="module")
def service():
    with serving() as served:
        served.post(**form(wav(tone(16_000))))  # so that they are counted
        yield served


@pytest.fixture
def clips(tmp_path):
    for seconds in (1, 2):
        (tmp_path / f"{seconds}.wav").write_bytes(wav(tone(16_000 * seconds)))
    return [str(tmp_path / "1.wav"), str(tmp_path / "2.wav")]


def bench(capsys, service, *arguments) -> tuple[int, dict]:
    status = main(["bench", str(service.client.base_url), *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("load", [["--clients", "3"], ["--rate", "40"]])
def test_transcripts_are_counted_timed_and_compared(capsys, service, clips, load):
    before = service.metric('steno_http_requests_total{endpoint="transcriptions"}')

    status, report = bench(capsys, service, *clips, *load, "--seconds", "0.5", "--compare")

    asked = service.metric('steno_http_requests_total{endpoint="transcriptions"}') - before
    assert status == 0
    assert report["transcripts"] == asked - len(clips) > 0  # each was asked for alone, first
    assert report["transcripts"] <= report["rtfx"] * report["seconds"] + 0.1 <= 2 * report["transcripts"] + 0.2
    assert report["rtfx"] == report["goodput_rtfx"]
    assert 0 < report["latency_seconds"]["p50"] <= report["latency_seconds"]["p99"]
    assert (report["mismatches"], report["errors"]) == (0, {})


def test_errors_are_counted_by_kind_and_late_answers_are_not_good(capsys, clips):
    with serving(max_requests=1) as service:
        arguments = ("--clients", "20", "--seconds", "0.3", "--objective", "0.000001")
        status, report = bench(capsys, service, *clips, *arguments)

    assert status == 1
    assert set(report["errors"]) == {"503 overloaded"}
    assert report["goodput_rtfx"] == 0 < report["rtfx"]


def test_transcripts_that_differ_from_those_alone_are_mismatches(capsys, service, clips, monkeypatch):
    async def other(client, uploads):
        return {upload.name: "something else" for upload in uploads}

    monkeypatch.setattr("cli.load.alone", other)

    status, report = bench(capsys, service, clips[0], "--clients", "1", "--seconds", "0.1", "--compare")

    assert (status, report["mismatches"]) == (1, report["transcripts"])


@pytest.mark.parametrize(
    ("url", "wrong"), [(None, ["--model", "none-such"]), ("http://127.0.0.1:9", []), ("http://127.0.0.1:port", [])]
)
def test_what_cannot_be_measured_is_one_line(capsys, service, clips, url, wrong):
    url = url or str(service.client.base_url)

    assert main(["bench", url, clips[0], *wrong]) == 2

    assert capsys.readouterr().err.splitlines()[-1].startswith(f"steno: {url}")


class Page(BaseHTTPRequestHandler):
    """Answers every upload with a page, as a proxy may."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        page = b"<html>Welcome</html>"
        self.send_response(200)
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


def test_a_service_of_another_kind_is_one_line(capsys, clips):
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            status = main(["bench", f"http://127.0.0.1:{server.server_port}", clips[0]])
        finally:
            server.shutdown()

    assert status == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("1.wav: 200 without a transcript")


def test_text_output_is_a_few_lines(capsys, service, clips):
    assert main(["bench", str(service.client.base_url), *clips, "--clients", "1", "--seconds", "0.1"]) == 0

    first, *_, errors = capsys.readouterr().out.splitlines()
    assert "RTFx" in first
    assert errors == "errors: none"


@given(st.floats(1, 1000), st.integers())
def test_arrivals_are_in_order_and_as_many_as_asked_for(rate, seed):
    arrivals = list(poisson(rate, 1000 / rate, seed))

    assert arrivals == sorted(arrivals)
    assert all(0 <= arrival < 1000 / rate for arrival in arrivals)
    assert abs(len(arrivals) - 1000) < 8 * 1000**0.5
