"""Clients that connect, break off and disconnect: whatever they do, the service holds nothing afterwards."""

import concurrent.futures
import random
import socket
import tempfile
from pathlib import Path

import pytest

from benchmarks.stub_engine import CRASH_SAMPLES, FAIL_SAMPLES, SAMPLE_RATE
from tests.service.serving import PATIENCE, ThreadedServer, form, post_bytes, serving, tone, wait_for, wav

GOOD = wav(tone(SAMPLE_RATE // 2))


def answered(service: ThreadedServer, chance: random.Random) -> int:
    return service.post(**form(GOOD)).status_code


def bad_audio(service: ThreadedServer, chance: random.Random) -> int:
    return service.post(**form(chance.randbytes(300))).status_code


def failing(service: ThreadedServer, chance: random.Random) -> int:
    return service.post(**form(wav(tone(FAIL_SAMPLES)))).status_code


def crashing(service: ThreadedServer, chance: random.Random) -> int:
    return service.post(**form(wav(tone(CRASH_SAMPLES)))).status_code


def leaves(service: ThreadedServer, chance: random.Random) -> int:
    """Close the connection anywhere within the request, or after it."""
    sent = post_bytes(service.server.port, GOOD)
    with socket.create_connection(("127.0.0.1", service.server.port), timeout=PATIENCE) as connection:
        connection.sendall(sent[: chance.randrange(1, len(sent) + 1)])
    return 0


CLIENTS = {answered: 6, bad_audio: 2, failing: 2, leaves: 6}


# What each kind of client sees, whatever the others do.
SEES = {answered: 200, bad_audio: 400, failing: 500, leaves: 0, crashing: 503}


def storm(service: ThreadedServer, requests: int, clients: dict, seed: int = 1) -> None:
    """Run many clients at once, and check the answers of each."""
    chance = random.Random(seed)
    kinds = chance.choices(list(clients), clients.values(), k=requests)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        running = [pool.submit(kind, service, random.Random(index)) for index, kind in enumerate(kinds)]
        seen = [(kind, future.result()) for kind, future in zip(kinds, running, strict=True)]
    assert {kind.__name__: status for kind, status in seen if status != SEES[kind]} == {}


def check_nothing_is_left(service: ThreadedServer) -> None:
    admission = service.server.dispatcher.admission
    wait_for(lambda: admission.requests == 0)
    assert admission.stored_bytes == 0
    assert admission.backlog.seconds == pytest.approx(0.0, abs=1e-6)
    wait_for(lambda: service.metric('steno_http_requests_in_flight{endpoint="transcriptions"}') == 0)
    assert service.post(**form(GOOD)).status_code == 200
    assert service.metric("steno_queue_depth") == 0


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_after_a_storm_no_request_no_file_and_no_byte_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with serving(max_requests=64) as service:
        storm(service, 50, CLIENTS)
        check_nothing_is_left(service)
        before = open_files()

        storm(service, 300, CLIENTS, seed=2)

        check_nothing_is_left(service)
        wait_for(lambda: open_files() <= before + 5)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_long_storm_with_engines_that_die():
    """Ten thousand requests; one in two hundred kills its engine twice, and only that one is an error."""
    with serving(max_requests=64) as service:
        storm(service, 1_000, CLIENTS | {crashing: 0.08}, seed=2)  # starts as many decoding processes as there may be
        check_nothing_is_left(service)
        before = open_files()

        storm(service, 10_000, CLIENTS | {crashing: 0.08})

        check_nothing_is_left(service)
        wait_for(lambda: open_files() <= before + 5)
        assert service.metric('steno_engine_restarts_total{reason="exit"}') > 40
