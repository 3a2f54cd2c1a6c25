"""Processor time of the front process for a clip, by stage: `python -m benchmarks front RECORDING`.

The service runs with the stub engine, which has no model, so that only the front is measured. The processor time of its
processes is read from /proc before and after requests of one kind. Other load of the machine disturbs it less than
requests a second, and it leaves out the clients, which run in this process. Stages are differences between kinds:

    http      GET /healthz: the connection, the parser, the framework, metrics
    form      an upload for a model that does not exist, less http: receiving and parsing the form, the log line
    decode    the decoder alone, called as the front calls it; the column "decoders" has FFmpeg's child processes
    dispatch  an upload that is answered, less all of the above: batches, the way to the engine and back, the answer

Kinds take turns, and medians are printed.

With ``--against FOLDER``, a checkout of another version, both serve side by side and get the same requests in turns.
The columns are the milliseconds per request of each, front and decoders together, the median and range of their ratios,
and the fronts' own shares.
"""

import argparse
import concurrent.futures
import io
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Self

import av
import httpx
import numpy as np
import soundfile
import torch

from audio.child_process import Confinement
from audio.origin import Wanted
from audio.pool import DecodePool
from benchmarks.environment import describe
from benchmarks.services import free_port, wait_for
from benchmarks.stub_engine import STUB_ENGINE

_RATE = 16_000
_TICK = os.sysconf("SC_CLK_TCK")
_TARGET_RTFX = 20_000
# Logs as in a container: a line of JSON for each request.
_SERVE = (
    "from service import logs; from service.server import run; from service.settings import Settings; "
    "logs.configure('json', 'info'); "
)
STAGES = ("http", "form", "decode", "dispatch")


@dataclass(frozen=True, slots=True)
class Used:
    """Processor time of a service: seconds since its start, or milliseconds per clip.

    Attributes:
        front: the front process.
        engine: the stub engine.
        decoders: the decoding child processes, ended ones included.
    """

    front: float
    engine: float
    decoders: float

    def since(self, before: "Used", clips: int) -> "Used":
        """Return the milliseconds per clip since ``before``."""
        now, then = astuple(self), astuple(before)
        return Used(*(1000 * (after - earlier) / clips for after, earlier in zip(now, then, strict=True)))


def clip(recording: Path, seconds: float) -> np.ndarray:
    """Return ``seconds`` of a recording's first channel, repeated if it is shorter: [samples], 16-bit, 16 kHz."""
    samples, rate = soundfile.read(recording, dtype="int16", always_2d=True)
    if rate != _RATE:
        raise SystemExit(f"{recording}: {rate} Hz; give one of {_RATE} Hz")
    return np.resize(samples[:, 0], round(seconds * _RATE))


def containers(samples: np.ndarray) -> dict[str, bytes]:
    """Return the clip in common file formats, by name."""
    files = {}
    for name, container, subtype in (("wav", "WAV", "PCM_16"), ("flac", "FLAC", "PCM_16"), ("mp3", "MP3", None)):
        file = io.BytesIO()
        soundfile.write(file, samples, _RATE, format=container, subtype=subtype)
        files[name] = file.getvalue()
    file = io.BytesIO()
    with av.open(file, "w", format="webm") as output:
        stream = output.add_stream("libopus", rate=48_000)
        frame = av.AudioFrame.from_ndarray(samples[None, :], format="s16", layout="mono")
        frame.sample_rate = _RATE
        resampled = av.AudioResampler(format="s16", layout="mono", rate=48_000).resample(frame)
        for piece in (*resampled, None):
            output.mux(stream.encode(piece))
    files["webm, Opus"] = file.getvalue()
    return files


@contextmanager
def serving(checkout: Path | None = None) -> Iterator[tuple[int, int]]:
    """Serve a checkout, or this code, with the stub engine; yield its process id and port."""
    port = free_port()
    is_old = checkout is not None and not (checkout / "benchmarks" / "stub_engine.py").exists()
    engine = "service.engine.stub" if is_old else STUB_ENGINE  # where it lay up to cd15705b
    serve = f"{_SERVE}run(Settings(model='stub.nemo', port={port}, max_requests=4096), {engine!r})"
    with tempfile.TemporaryFile() as log:
        env = os.environ | ({"PYTHONPATH": str(checkout)} if checkout else {})
        process = subprocess.Popen([sys.executable, "-c", serve], stderr=log, cwd=checkout, env=env)  # noqa: S603
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            yield process.pid, port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def used(front: int) -> Used:
    """Return the processor time of the service with this front process."""
    engine = decoders = 0.0
    for child in _descendants(front):
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"stub" in command:
            engine += _processor_seconds(child)
        else:
            decoders += _processor_seconds(child)
    decoders += _processor_seconds(front, of_ended_children=True)
    return Used(_processor_seconds(front), engine, decoders)


def _descendants(parent: int) -> Iterator[int]:
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from _descendants(child)


def _processor_seconds(process: int, *, of_ended_children: bool = False) -> float:
    # The name, in brackets, is field 2. Fields 14 and 15 are user and system time, 16 and 17 those of ended children.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    first = 13 if of_ended_children else 11
    return (int(fields[first]) + int(fields[first + 1])) / _TICK


def upload(file: bytes, model: str, **fields: str) -> bytes:
    """Return the bytes of a request that uploads a file."""
    request = httpx.Request(
        "POST",
        "http://127.0.0.1/v1/audio/transcriptions",
        files={"file": ("clip", file)},
        data={"model": model} | fields,
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST {request.url.path} HTTP/1.1\r\n{head}\r\n".encode() + request.read()


HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def send(port: int, request: bytes, status: bytes, requests: int, clients: int) -> None:
    """Send a request again and again on ``clients`` connections; each answer must have the status."""

    def client(share: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
            for _ in range(share):
                connection.sendall(request)
                line = answers.readline()
                if status not in line:
                    raise SystemExit(f"{line!r} instead of {status!r}")
                size = 0
                while (header := answers.readline()) != b"\r\n":
                    if not header:
                        raise SystemExit("the service closed the connection within an answer")
                    name, _, value = header.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                answers.read(size)

    with concurrent.futures.ThreadPoolExecutor(clients) as threads:
        for done in [threads.submit(client, (requests + number) // clients) for number in range(clients)]:
            done.result()


def _drop(_samples: bytes | memoryview, _channel: int) -> None:
    """Discard decoded samples."""


def decode_milliseconds(file: bytes, pool: DecodePool, clips: int) -> float:
    """Return the processor milliseconds of this thread to decode a clip, without child processes."""
    began = time.thread_time()
    for _ in range(clips):
        pool.decode_into(_drop, io.BytesIO(file), Wanted(_RATE))
    return 1000 * (time.thread_time() - began) / clips


def measure(files: Mapping[str, bytes], *, requests: int, clients: int, runs: int) -> list[dict[str, object]]:
    """Return a row for each container: processor milliseconds for a clip by stage, medians of the runs."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in files}
    with serving() as (front, port), DecodePool(Confinement()) as pool:

        def cost(request: bytes, status: bytes) -> Used:
            before = used(front)
            send(port, request, status, requests, clients)
            return used(front).since(before, requests)

        for run in range(runs + 1):  # the first one warms up
            http = cost(HEALTH, b" 200 ").front
            for name, file in files.items():
                refused = cost(upload(file, "none"), b" 404 ").front
                whole = cost(upload(file, "stub"), b" 200 ")
                decoding = decode_milliseconds(file, pool, max(10, requests // 10))
                row = {
                    "http": http,
                    "form": refused - http,
                    "decode": decoding,
                    "dispatch": whole.front - refused - decoding,
                    "front": whole.front,
                    "decoders": whole.decoders,
                    "engine": whole.engine,
                }
                if run:
                    found[name].append(row)
    return [
        {"container": name, "bytes": len(files[name])}
        | {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for name, rows in found.items()
    ]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Processor milliseconds per request of a kind: medians here and there, median and range of here / there.

    Attributes:
        front_here, front_there: medians of the fronts' own shares.
    """

    kind: str
    here: float
    there: float
    ratio: float
    least: float
    most: float
    front_here: float
    front_there: float

    @classmethod
    def of(cls, kind: str, pairs: list[tuple[Used, Used]]) -> Self:
        """Summarise pairs, here and there."""
        totals = [tuple(one.front + one.decoders for one in pair) for pair in pairs]
        ratios = [here / there for here, there in totals]
        here, there = (statistics.median(column) for column in zip(*totals, strict=True))
        fronts = (statistics.median(one.front for one in column) for column in zip(*pairs, strict=True))
        return cls(kind, here, there, statistics.median(ratios), min(ratios), max(ratios), *fronts)


def compare(files: Mapping[str, bytes], checkout: Path, *, requests: int, clients: int, runs: int) -> list[Ratio]:
    """Return the cost of requests of each kind here and in a checkout of another version."""
    kinds = {"GET /healthz": HEALTH}
    kinds |= {f"{name}, json": upload(files[name], "stub") for name in files}
    kinds |= {f"wav, {name}": upload(files["wav"], "stub", response_format=name) for name in ("text", "verbose_json")}
    found: dict[str, list[tuple[Used, Used]]] = {name: [] for name in kinds}
    with serving() as ours, serving(checkout) as theirs:

        def cost(service: tuple[int, int], request: bytes) -> Used:
            front, port = service
            before = used(front)
            send(port, request, b" 200 ", requests, clients)
            return used(front).since(before, requests)

        for run in range(runs + 1):  # the first one warms up
            for name, request in kinds.items():
                if run % 2:
                    here, there = cost(ours, request), cost(theirs, request)
                else:
                    there, here = cost(theirs, request), cost(ours, request)
                if run:
                    found[name].append((here, there))
    return [Ratio.of(name, pairs) for name, pairs in found.items()]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a clip")
    parser.add_argument("--requests", type=int, default=400, help="requests of each kind in a run")
    parser.add_argument("--clients", type=int, default=8, help="connections")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="a checkout of the version to compare with")
    args = parser.parse_args()

    about = describe(torch.device("cpu"))
    about |= {"seconds": args.seconds, "requests": args.requests, "clients": args.clients}
    files = containers(clip(args.recording, args.seconds))

    if args.against is not None:
        ratios = compare(files, args.against, requests=args.requests, clients=args.clients, runs=args.runs)
        print(
            f"{'processor ms by request':>24} {'here':>8} {'there':>8} {'ratio':>8} {'range':>14} "
            f"{'front':>8} {'there':>8}"
        )
        for one in ratios:
            spread = f"{one.least:.2f} to {one.most:.2f}"
            totals = f"{one.here:8.2f} {one.there:8.2f} {one.ratio:8.2f} {spread:>14}"
            print(f"{one.kind:>24} {totals} {one.front_here:8.2f} {one.front_there:8.2f}")
        print(json.dumps({"benchmark": "front against", **about, "rows": [asdict(one) for one in ratios]}))
        return
    rows = measure(files, requests=args.requests, clients=args.clients, runs=args.runs)
    clips = _TARGET_RTFX / args.seconds
    print(f"processor ms by clip ({args.seconds:g} s); clips/s of a core; cores at {_TARGET_RTFX} RTFx, {clips:.0f}/s")
    columns = (*STAGES, "front", "decoders", "engine")
    print(f"{'':>12} {'kB':>5} " + " ".join(f"{name:>8}" for name in columns) + f" {'clips/s':>8} {'cores':>6}")
    for row in rows:
        front, decoders = float(row["front"]), float(row["decoders"])  # type: ignore[arg-type]
        row["clips_per_core_second"] = 1000 / (front + decoders)
        row["cores"] = clips * (front + decoders) / 1000
        figures = " ".join(f"{row[name]:8.2f}" for name in columns)
        kilobytes = int(row["bytes"]) // 1000  # type: ignore[call-overload]
        print(f"{row['container']:>12} {kilobytes:5} {figures} {row['clips_per_core_second']:8.0f} {row['cores']:6.1f}")
    print(json.dumps({"benchmark": "front", **about, "rows": rows}))


if __name__ == "__main__":
    main()
