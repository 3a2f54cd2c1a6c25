"""Faults of the system under the service; those of engines, decoders and clients are in their own tests."""

import concurrent.futures
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest

from benchmarks.stub_engine import SAMPLE_RATE, STUB_ENGINE
from tests.audio.media_files import media
from tests.models.checkpoint.hub_stand_in import Hub, Repository
from tests.service.serving import (
    PATIENCE,
    ServerProcess,
    form,
    post_bytes,
    serving,
    steno_serve,
    stop_decoders,
    tone,
    wait_for,
    wav,
)
from tests.soak.processes import children, decoders

CLIP = wav(tone(SAMPLE_RATE))


def test_an_upload_for_which_the_disk_has_no_room_is_refused_for_now(monkeypatch):
    with serving() as service:
        with monkeypatch.context() as patched:
            patched.setattr(tempfile, "tempdir", "/proc")  # which cannot be written to
            answer = service.post(**form(bytes(3_000_000)))

        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "60"
        assert service.server.dispatcher.admission.stored_bytes == 0
        assert service.post(**form(CLIP)).status_code == 200


@pytest.mark.slow
def test_a_service_out_of_file_descriptors_refuses_and_recovers(golden, tmp_path):
    model = str(golden / "quartznet-small" / "model.nemo")
    with steno_serve(tmp_path / "log", "--model", model) as service:
        pid, url = service.process.pid, service.client.base_url
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).status_code == 200
        wait_for(lambda: len(decoders(pid)) == 2)  # the spare starts a few seconds after the service

        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, usual[1]))  # nothing new can be opened, what is open stays
        large = wav(tone(20 * SAMPLE_RATE))  # which is not copied for a decoder
        answer = service.client.post("/v1/audio/transcriptions", **form(large))  # over the connection that it has
        with contextlib.ExitStack() as stack:
            for _ in range(20):  # these may be answered or not
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_connection((url.host, url.port), 5))
            still = service.client.get("/healthz")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)

        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert still.status_code == 200
        wait_for(lambda: httpx.get(url.join("/healthz"), trust_env=False).status_code == 200)
        assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).status_code == 200


@pytest.mark.slow
def test_an_engine_that_dies_while_no_file_can_be_opened_is_replaced_when_one_can(tmp_path):
    with steno_serve(tmp_path / "log", "--model", "stub.nemo", engine=STUB_ENGINE) as service:
        pid = service.process.pid
        used = len(os.listdir(f"/proc/{pid}/fd"))
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, usual[1]))
        service.signal_engine(signal.SIGKILL)
        wait_for(lambda: bool(service.events("no process can be started now")))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)

        service.wait_ready()
        assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).status_code == 200
        # The engine's two, and a socket, a ring and two of copies of the decoder and its spare.
        assert len(os.listdir(f"/proc/{pid}/fd")) <= used + 10


@pytest.mark.slow
def test_a_service_without_memory_refuses_for_now_and_recovers(tmp_path):
    """With little memory, a request is answered, refused, or has its connection closed, and others are answered."""
    upload = form(wav(tone(30 * SAMPLE_RATE)))
    with (
        steno_serve(tmp_path / "log", "--model", "stub.nemo", engine=STUB_ENGINE) as service,
        concurrent.futures.ThreadPoolExecutor(16) as pool,
    ):
        pid, answers = service.process.pid, []
        expected = service.client.post("/v1/audio/transcriptions", **upload).json()["text"]
        usual = resource.prlimit(pid, resource.RLIMIT_AS)

        def ask(_) -> None:
            with contextlib.suppress(httpx.TransportError):
                answers.append(service.client.post("/v1/audio/transcriptions", **upload))

        for megabytes in (-64, 0, 16):  # room in the heaps that it has is not counted, nor is that for threads
            taken = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
            resource.prlimit(pid, resource.RLIMIT_AS, (taken + (megabytes << 20), usual[1]))
            list(pool.map(ask, range(16)))
            resource.prlimit(pid, resource.RLIMIT_AS, usual)
            assert service.client.get("/healthz").status_code == 200

        refused = [answer for answer in answers if answer.status_code != 200]
        assert {answer.json()["text"] for answer in answers if answer.status_code == 200} <= {expected}
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in refused} == {(503, "overloaded")}
        assert {answer.headers["retry-after"] for answer in refused} == {"60"}
        assert service.client.post("/v1/audio/transcriptions", **upload).json()["text"] == expected
        assert service.metric('steno_http_requests_in_flight{endpoint="transcriptions"}') == 0


@pytest.mark.long
@pytest.mark.parametrize("fault", ["changed", "gone"])
def test_a_checkpoint_that_changed_when_its_engine_is_replaced_ends_the_service(golden, tmp_path, fault):
    """Otherwise half of a recording would be transcribed by one model and half by another."""
    checkpoint = tmp_path / "model.nemo"
    shutil.copy(golden / "quartznet-small" / "model.nemo", checkpoint)
    with steno_serve(tmp_path / "log", "--model", str(checkpoint)) as service:
        checkpoint.unlink()
        if fault == "changed":
            shutil.copy(golden / "jasper-small" / "model.nemo", checkpoint)
        service.signal_engine(signal.SIGKILL)

        assert service.process.wait(PATIENCE) == 2
        said = [line for line in service.log.read_text().splitlines() if not line.startswith("{")]
        assert len(said) == 1
        assert str(checkpoint) in said[0]
        assert ("has changed since it was loaded" in said[0]) == (fault == "changed")


@pytest.mark.slow
def test_an_engine_that_is_replaced_does_not_ask_the_hub(golden, tmp_path):
    files = {"small.nemo": (golden / "quartznet-small" / "model.nemo").read_bytes()}
    with Hub({"owner/small": Repository({"main": files})}) as hub:
        environment = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": "1"}
        with steno_serve(tmp_path / "log", "--model", "owner/small", **environment) as service:
            expected = service.client.post("/v1/audio/transcriptions", **form(CLIP)).json()
            asked = len(hub.requests)
            hub.repositories["owner/small"].revisions["main"] = {"small.nemo": b"another model by now"}
            service.signal_engine(signal.SIGKILL)
            wait_for(lambda: len(service.events("model ready")) == 2)

            assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).json() == expected
            assert len(hub.requests) == asked

            hub.stop()
            service.signal_engine(signal.SIGKILL)
            wait_for(lambda: len(service.events("model ready")) == 3)
            assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).json() == expected
            assert not service.events("the hub cannot be reached")


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_jump_of_the_wall_clock_changes_nothing(monkeypatch, jump):
    with serving(engine_timeout_seconds=60.0) as service, concurrent.futures.ThreadPoolExecutor(4) as pool:
        service.hold_engine()
        asked = [pool.submit(service.post, **form(CLIP)) for _ in range(4)]
        wait_for(lambda: service.metric("steno_queue_depth") == 3)

        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        service.release_engine()

        assert [answer.result().status_code for answer in asked] == [200] * 4
        assert service.post(**form(CLIP)).status_code == 200
        assert service.metric("steno_engine_restarts_total") == 0


def exists(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.slow
def test_a_second_sigterm_ends_whatever_is_under_way_and_leaves_no_process(golden, tmp_path):
    """A client in each stage: in its head, in its body, queued, and with the engine."""
    model = str(golden / "quartznet-small" / "model.nemo")
    with steno_serve(tmp_path / "log", "--model", model) as service, contextlib.ExitStack() as stack:
        port = service.client.base_url.port
        whole = post_bytes(port, CLIP)
        service.signal_engine(signal.SIGSTOP)
        connections = []
        for sent in (whole[:40], whole[: len(whole) // 2], whole, whole):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            connection.sendall(sent)
            connections.append(connection)
        wait_for(lambda: service.metric("steno_queue_depth") == 1)

        stop_twice(service)

        answers = [connection.recv(1 << 16) for connection in connections]
        for answer in answers[2:]:
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"x-should-retry: true" in answer
            assert b'"code":"draining"' in answer
        assert service.events("cut off")[0]["requests"] == 3


def stop_twice(service: ServerProcess) -> None:
    """Send SIGTERM, and again when the service drains; it must end with 0 and leave no process."""
    processes = children(service.process.pid)
    service.process.send_signal(signal.SIGTERM)
    wait_for(lambda: bool(service.events("draining")))
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(PATIENCE) == 0
    wait_for(lambda: not any(map(exists, processes)))


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.slow
@pytest.mark.parametrize("is_job", [False, True])
def test_a_decoder_process_that_would_decode_for_minutes_is_ended_at_the_second_sigterm_a_jobs_at_the_first(
    tmp_path, is_job
):
    upload = form(media(tone(SAMPLE_RATE), SAMPLE_RATE, "ipod", "aac"))
    flags = ("--model", "stub.nemo", "--jobs-folder", str(tmp_path / "jobs"))
    with (
        steno_serve(tmp_path / "log", *flags, engine=STUB_ENGINE) as service,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        pid = service.process.pid
        assert service.client.post("/v1/audio/transcriptions", **upload).status_code == 200
        stop_decoders(pid)
        if is_job:
            job = service.client.post("/v1/audio/jobs", **upload).json()["id"]
            wait_for(lambda: service.client.get(f"/v1/audio/jobs/{job}").json()["status"] == "in_progress")
        else:
            asked = pool.submit(service.client.post, "/v1/audio/transcriptions", **upload)
            wait_for(lambda: service.metric("steno_http_requests_in_flight{transcriptions}") == 1)

        if is_job:
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(PATIENCE) == 0
        else:
            stop_twice(service)
            assert refusal(asked.result()) in [(503, "decoding_unavailable"), (503, "draining")]
    if is_job:  # nothing that was accepted is lost
        with steno_serve(tmp_path / "second.log", *flags, engine=STUB_ENGINE) as service:
            wait_for(lambda: service.client.get(f"/v1/audio/jobs/{job}").json()["status"] == "completed")


@pytest.mark.slow
def test_a_second_sigterm_ends_a_stream_with_an_error(tmp_path):
    """It has begun, so that its status is sent: a client takes an event with an error for one."""
    flags = ("--model", "stub.nemo")
    with steno_serve(tmp_path / "log", *flags, engine=STUB_ENGINE, HEARTBEAT_SECONDS="0.05") as service:
        service.signal_engine(signal.SIGSTOP)
        upload = form(CLIP, stream="true")
        with service.client.stream("POST", "/v1/audio/transcriptions", **upload) as answer:
            lines = answer.iter_lines()
            assert (answer.status_code, next(lines)) == (200, ": waiting")
            stop_twice(service)
            events = [line for line in lines if line.startswith("data: ")]

    assert [json.loads(event.removeprefix("data: "))["error"]["code"] for event in events] == ["draining"]


@pytest.mark.slow
def test_a_second_sigterm_ends_the_load_of_a_further_model(tmp_path):
    flags = ("--model", "stub.nemo", "--models-on-demand", "hub/endless")
    with (
        steno_serve(tmp_path / "log", *flags, engine=STUB_ENGINE) as service,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(service.client.post, "/v1/audio/transcriptions", **form(CLIP, model="hub/endless"))
        wait_for(lambda: bool(service.events("loading model on demand")))

        stop_twice(service)

        assert refusal(asked.result()) in [(503, "model_load_failed"), (503, "draining")]


@pytest.mark.long
def test_a_job_that_is_done_while_nothing_can_be_written_is_kept_when_it_can(tmp_path):
    flags = ("--model", "stub.nemo", "--jobs-folder", str(tmp_path / "jobs"))
    with steno_serve(tmp_path / "log", *flags, engine=STUB_ENGINE) as service:
        # The limit below is on files in memory too, which are large enough after a request.
        assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).status_code == 200
        service.signal_engine(signal.SIGSTOP)
        job = service.client.post("/v1/audio/jobs", **form(CLIP)).json()["id"]
        wait_for(lambda: service.client.get(f"/v1/audio/jobs/{job}").json()["status"] == "in_progress")
        usual = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        (written,) = (tmp_path / "jobs").glob("*-wal")
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (written.stat().st_size, usual[1]))

        service.signal_engine(signal.SIGCONT)
        wait_for(lambda: bool(service.events("the jobs cannot be written")))
        assert service.client.post("/v1/audio/transcriptions", **form(CLIP)).status_code == 200
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, usual)

        wait_for(lambda: service.client.get(f"/v1/audio/jobs/{job}").json()["status"] == "completed")
        assert service.client.get(f"/v1/audio/jobs/{job}/result").status_code == 200


@pytest.mark.slow
def test_sigterm_twice_while_the_model_loads_ends_the_service(golden, tmp_path):
    model = str(golden / "quartznet-small" / "model.nemo")
    with steno_serve(tmp_path / "log", "--model", model, wait_ready=False) as service:
        wait_for(lambda: bool(service.events("engine started")))
        service.signal_engine(signal.SIGSTOP)  # for ever
        engine = service.engine_pid()

        service.process.send_signal(signal.SIGTERM)
        service.process.send_signal(signal.SIGTERM)

        assert service.process.wait(PATIENCE) == 0
        wait_for(lambda: not exists(engine))


def test_the_log_says_the_url_of_an_address_of_ipv6(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with steno_serve(tmp_path / "log", "--model", "stub.nemo", "--host", "::1", engine=STUB_ENGINE) as service:
        (line,) = service.events("listening")

    assert line["url"].startswith("http://[::1]:")


def test_too_few_open_files_are_one_line():
    done = subprocess.run(
        ["bash", "-c", 'ulimit -n 24; exec "$0" -m cli serve --port 0', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )

    message = "steno serve: at most 24 files may be open (ulimit -n); the service needs 64\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
