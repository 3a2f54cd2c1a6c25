"""Runs real servers for tests: in a thread with a stub engine, or as a process of its own with a real one."""

import asyncio
import contextlib
import http.server
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import soundfile
import uvloop

from benchmarks.stub_engine import SAMPLE_RATE, STUB_ENGINE
from service.engine.supervisor import SPEECH_ENGINE
from service.server import Server
from service.settings import Settings
from tests.soak.processes import decoders

PATIENCE = 120.0
# `steno serve` with another engine than it would have.
_SERVE_WITH_ENGINE = """
import functools, os, sys
from cli.serve import run
from service import server
from service.http.transcription import answer
answer.HEARTBEAT_SECONDS = float(os.environ.get("HEARTBEAT_SECONDS", answer.HEARTBEAT_SECONDS))
server.run = functools.partial(server.run, engine_module=sys.argv[1])
sys.exit(run(sys.argv[2:]))
"""


def wav(samples: np.ndarray, rate: int = SAMPLE_RATE, subtype: str = "FLOAT") -> bytes:
    """A WAV file of these samples."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype=subtype, format="WAV")
    return file.getvalue()


def stop_decoders(pid: int, others: Collection[int] = ()) -> list[int]:
    """Stop the decoding process of a service that has decoded one file, and its spare; return which they are.

    ``others`` are those of other services of this process.
    """
    wait_for(lambda: len(set(decoders(pid)) - set(others)) == 2)
    stopped = sorted(set(decoders(pid)) - set(others))
    for decoder in stopped:
        os.kill(decoder, signal.SIGSTOP)
    return stopped


def tone(samples: int, level: float = 0.1) -> np.ndarray:
    """Audio of an exact number of samples."""
    return (level * np.sin(np.arange(samples) * 0.05)).astype(np.float32)


def form(file: bytes, name: str = "clip", **fields: str) -> dict:
    """Arguments of a POST that uploads a file."""
    return {"files": {"file": (name, file)}, "data": {"model": "whisper-1"} | fields}


def events(answer: httpx.Response) -> list[dict]:
    """The events of a streamed answer."""
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]


def post_bytes(port: int, body: bytes, **fields: str) -> bytes:
    """A whole POST as it goes over the wire."""
    request = httpx.Request("POST", f"http://127.0.0.1:{port}/v1/audio/transcriptions", **form(body, **fields))
    headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST {request.url.path} HTTP/1.1\r\n{headers}\r\n".encode() + request.read()


@contextlib.contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[http.server.HTTPServer]:
    """An HTTP server of this machine, answering by a handler until the block ends; it has its `origin`."""
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.origin = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def metric(text: str, name: str) -> float:
    """The sum of a metric's series in an exposition; `name` may end in labels, which they have among others.

    A series with labels is exported when it has first been counted; until then it is 0.
    """
    family, _, labels = name.rstrip("}").partition("{")
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith(family) and line[len(family)] in " {" and all(one in line for one in labels.split(","))
    ]
    assert values or labels, f"{name} is not exported"
    return sum(values)


def wait_for(condition: Callable[[], bool]) -> None:
    """Poll until a real process has done something."""
    tick = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if condition():
            return
        tick.wait(0.02)
    raise AssertionError("it did not come about")


@dataclass
class ThreadedServer:
    """A server on a loop of its own thread, with a client for it."""

    server: Server
    client: httpx.Client
    loop: asyncio.AbstractEventLoop
    outcome: list[BaseException]

    def metric(self, name: str) -> float:
        return metric(self.client.get("/metrics").text, name)

    def post(self, **arguments) -> httpx.Response:
        return self.client.post("/v1/audio/transcriptions", **arguments)

    def hold_engine(self) -> None:
        """Stop the engine process; messages to it wait in its socket."""
        os.kill(self.server.fleet.engines[0].pid, signal.SIGSTOP)

    def release_engine(self) -> None:
        os.kill(self.server.fleet.engines[0].pid, signal.SIGCONT)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop the engine process until the block ends."""
        self.hold_engine()
        try:
            yield
        finally:
            self.release_engine()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stop, False)


@contextlib.contextmanager
def serving(*, wait_ready: bool = True, engine: str = STUB_ENGINE, **settings) -> Iterator[ThreadedServer]:
    """Serve with a stub engine until the block ends."""
    started = threading.Event()
    running: list[ThreadedServer] = []
    outcome: list[BaseException] = []

    async def main() -> None:
        server = Server(Settings(**({"model": "stub.nemo", "port": 0} | settings)), engine)
        client = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE, trust_env=False)
        running.append(ThreadedServer(server, client, asyncio.get_running_loop(), outcome))
        started.set()
        try:
            await server.run()
        except Exception as error:
            outcome.append(error)

    def thread() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    worker = threading.Thread(target=thread)
    worker.start()
    assert started.wait(PATIENCE)
    served = running[0]
    try:
        if wait_ready:
            wait_for(lambda: served.client.get("/readyz").status_code == 200)
        yield served
    finally:
        with contextlib.suppress(RuntimeError):  # it may have ended by itself
            served.stop()
            served.stop()
        worker.join(PATIENCE)
        served.client.close()
        assert not worker.is_alive()


@dataclass
class ServerProcess:
    """`steno serve`, as an operator runs it."""

    process: subprocess.Popen
    log: Path
    client: httpx.Client

    def events(self, event: str) -> list[dict]:
        """Log lines of one event so far."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def engine_pid(self) -> int:
        """The newest engine process."""
        return self.events("engine started")[-1]["pid"]

    def signal_engine(self, number: signal.Signals) -> None:
        os.kill(self.engine_pid(), number)

    def metric(self, name: str) -> float:
        return metric(self.client.get("/metrics").text, name)

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(httpx.TransportError):
                return self.client.get("/readyz").status_code == 200
            return False

        wait_for(ready)


@contextlib.contextmanager
def steno_serve(
    log: Path, *flags: str, wait_ready: bool = True, engine: str = SPEECH_ENGINE, **environment: str
) -> Iterator[ServerProcess]:
    """Run `steno serve` on a free port until the block ends.

    Without `STENO_RESCUE`, its words are those that the model has offline: models of tests, whose words mean nothing,
    leave gaps.
    """
    command = ["-m", "cli", "serve"] if engine == SPEECH_ENGINE else ["-c", _SERVE_WITH_ENGINE, engine]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", *command, "--port", "0", "--log-format", "json", *flags],
            stderr=output,
            env=dict(os.environ) | {"STENO_RESCUE": "false"} | environment,
        )
    served = ServerProcess(process, log, httpx.Client())
    try:
        wait_for(lambda: bool(served.events("listening")) or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        url = served.events("listening")[0]["url"]
        served.client = httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False)
        if wait_ready:
            served.wait_ready()
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # as SIGTERM, without the time that a balancer gets
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        served.client.close()
