"""The front's cost is reported by clip and stage, and the clips have the stated lengths."""

import io
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from audio.decode import decode_into
from audio.origin import Wanted
from benchmarks.front import HEALTH, Used, clip, containers, measure, send, used

SAMPLE = Path(__file__).resolve().parent.parent.parent / "samples" / "austen.flac"


@pytest.mark.parametrize("container", ["wav", "flac", "mp3", "webm, Opus"])
def test_clips_are_as_long_as_they_are_said_to_be(container):
    decoded = []
    file = io.BytesIO(containers(clip(SAMPLE, 10.0))[container])

    decode_into(lambda piece, _: decoded.append(len(piece) // 4), file, Wanted(16_000))

    assert sum(decoded) == pytest.approx(160_000, abs=2000)


def test_figures_are_by_clip_and_in_milliseconds():
    assert Used(3.0, 2.0, 1.0).since(Used(1.0, 1.0, 1.0), 100) == Used(20.0, 10.0, 0.0)


def test_all_requests_are_sent_where_clients_do_not_divide_their_number():
    answered = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            answered.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        send(server.server_port, HEALTH, b" 200 ", requests=5, clients=3)
        server.shutdown()

    assert len(answered) == 5


def test_the_processor_time_of_a_process_grows_with_what_it_does():
    before = used(os.getpid()).front
    while used(os.getpid()).front < before + 0.05:
        np.linalg.svd(np.ones((50, 50)))


@pytest.mark.slow
def test_a_service_is_measured_from_start_to_end():
    (row,) = measure({"wav": containers(clip(SAMPLE, 1.0))["wav"]}, requests=16, clients=2, runs=1)

    assert row["container"] == "wav"
    stages = [row[stage] for stage in ("http", "form", "decode", "dispatch")]
    assert sum(stages) == pytest.approx(row["front"])
    assert row["decoders"] == 0.0


def test_an_answer_that_breaks_off_ends_the_benchmark():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        with pytest.raises(SystemExit, match="closed the connection"):
            send(server.server_port, HEALTH, b" 200 ", requests=1, clients=1)
        server.shutdown()
