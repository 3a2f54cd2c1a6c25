"""HTTP processes that die, stand still, or never become ready; and their ends."""

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path

import httpx
import pytest

from benchmarks.stub_engine import STUB_ENGINE
from service import supervision
from service.workers import supervisor
from service.workers.supervisor import WorkerStartError
from tests.service.serving import PATIENCE, form, serving, steno_serve, tone, wait_for, wav
from tests.service.workers.connections import answer, posted, reconnect, wait_until_listening, workers


@pytest.mark.slow
@pytest.mark.parametrize("fault", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_a_worker_that_dies_or_stands_still_takes_only_its_own_requests_with_it(fault):
    with serving(http_processes=2, engine_timeout_seconds=PATIENCE) as served:
        wait_until_listening(served)
        assert served.post(**form(wav(tone(2000)))).status_code == 200
        before = served.metric("steno_http_requests_total")
        served.hold_engine()
        lengths = range(2000, 2040)
        sent = [posted(served.server.port, tone(length)) for length in lengths]
        admission = served.server.dispatcher.admission
        wait_for(lambda: len(admission.backlog.entries) == len(lengths))
        faulty, kept = workers(served)

        os.kill(faulty, fault)
        for _ in range(8):  # whoever accepts these, it is not the faulty one
            assert httpx.get(f"{served.client.base_url}/healthz", timeout=PATIENCE).status_code == 200
        wait_for(lambda: faulty not in workers(served) and len(workers(served)) == 2)
        withdrawn = len(lengths) - len(admission.backlog.entries)
        wait_for(lambda: admission.requests == len(lengths) - withdrawn)
        served.release_engine()

        told = [answer(connection) for connection in sent]
        assert told.count(b"") == withdrawn
        assert all(f'"{length} '.encode() in one for length, one in zip(lengths, told, strict=True) if one)
        assert kept in workers(served)
        wait_until_listening(served)
        assert served.post(**form(wav(tone(2000)))).status_code == 200
        # Workers say what they count only now and then.
        wait_for(lambda: served.metric("steno_http_requests_total") >= before + len(lengths) - withdrawn)
        wait_for(lambda: admission.requests == admission.stored_bytes == 0)
        assert admission.backlog.seconds == 0


@pytest.mark.slow
def test_no_count_falls_while_a_worker_ends(monkeypatch):
    ending, may_end = threading.Event(), threading.Event()

    async def end_late(process, patience):
        ending.set()
        await asyncio.to_thread(may_end.wait, PATIENCE)
        await supervision.end(process, patience)

    with serving(http_processes=2) as served:
        wait_until_listening(served)
        for _ in range(16):
            reconnect(served)
            assert served.post(**form(wav(tone(2000)))).status_code == 200
        before = served.metric("steno_http_requests_total")
        monkeypatch.setattr(supervisor, "end", end_late)
        os.kill(workers(served)[0], signal.SIGKILL)
        assert ending.wait(PATIENCE)
        reconnect(served)

        during = served.metric("steno_http_requests_total")

        monkeypatch.undo()
        may_end.set()
        assert during >= before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("ends", r"an HTTP process ended while it started \(status 3\)"),
        ("hangs", "an HTTP process was not ready after 1 s"),
    ],
)
def test_a_service_whose_first_workers_never_become_ready_ends_and_says_why(fault, message, monkeypatch):
    monkeypatch.setenv("FAULTY_WORKER", fault)
    monkeypatch.setattr(supervisor, "_MODULE", "tests.service.workers.faulty_worker")
    monkeypatch.setattr(supervisor, "_START_SECONDS", 1.0)

    with serving(http_processes=2, wait_ready=False) as served:
        wait_for(lambda: bool(served.outcome))

        (error,) = served.outcome
        assert isinstance(error, WorkerStartError)
        with pytest.raises(WorkerStartError, match=f"^{message}$"):
            raise error
        assert not workers(served)


@pytest.mark.slow
def test_a_worker_whose_successors_never_become_ready_is_replaced_when_one_can(monkeypatch, caplog):
    monkeypatch.setenv("FAULTY_WORKER", "ends")
    monkeypatch.setattr(supervision, "_BACKOFF_SECONDS", (0.0,))
    with serving(http_processes=2) as served:
        wait_until_listening(served)
        with monkeypatch.context() as patched:
            patched.setattr(supervisor, "_MODULE", "tests.service.workers.faulty_worker")

            os.kill(workers(served)[0], signal.SIGKILL)
            reconnect(served)

            wait_for(lambda: caplog.messages.count("worker gone") > 6)
            assert served.metric("steno_http_processes") == 1
            assert served.post(**form(wav(tone(2000)))).status_code == 200
        wait_until_listening(served)
        assert served.post(**form(wav(tone(2000)))).status_code == 200


@pytest.mark.slow
def test_attempts_without_room_for_a_process_do_not_count_as_restarts(monkeypatch, caplog):
    attempts = []

    def no_room(*_):
        attempts.append(None)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(supervision, "_SHORTAGE_SECONDS", 0.01)
    with serving(http_processes=2) as served:
        wait_until_listening(served)
        with monkeypatch.context() as patched:
            patched.setattr(supervisor, "started", no_room)

            os.kill(workers(served)[0], signal.SIGKILL)
            wait_for(lambda: len(attempts) > 3)
        reconnect(served)
        wait_until_listening(served)
        assert caplog.messages.count("worker gone") == 1


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_drain_answers_what_was_accepted_and_refuses_the_rest():
    with serving(http_processes=2) as served:
        wait_until_listening(served)
        served.hold_engine()
        sent = [posted(served.server.port, tone(2000 + number)) for number in range(8)]
        wait_for(lambda: len(served.server.dispatcher.admission.backlog.entries) == 8)

        served.stop()
        wait_for(lambda: served.server.workers.shared.outlook().is_draining)
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

        assert b"draining" in answer(connection)
        wait_for(lambda: not workers(served))


@pytest.mark.long
def test_a_relayed_upload_is_told_that_the_service_stops(tmp_path: Path):
    with serving(http_processes=2, jobs_folder=tmp_path) as served:
        wait_until_listening(served)
        connection = socket.create_connection(("127.0.0.1", served.server.port), PATIENCE)
        connection.sendall(
            b"POST /v1/audio/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: audio/wav\r\n"
            b"content-length: 100000\r\n\r\nRIFF"
        )
        wait_for(lambda: served.server.dispatcher.admission.requests == 1)

        served.stop()
        served.stop()

        told = answer(connection)
        assert told.startswith(b"HTTP/1.1 503")
        assert b"draining" in told
