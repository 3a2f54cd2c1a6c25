"""Throughput of the service compared with `steno transcribe`, on the same files and cores, with many clients.

    python -m benchmarks served samples/austen.flac --threads 2

Both have their model loaded and take turns: in a round, one process transcribes all files as `steno transcribe` does,
and then clients upload each file once to the service. *Wall* is the service's throughput divided by that offline. The
clients run on the same cores, so it is lower than with clients elsewhere. *Processor* is the same by processor time,
without that of the clients: the ratio on cores of its own, which other load of the machine disturbs less. Waiting
threads spin, so with more than one thread the processor time is not exact.
"""

import argparse
import asyncio
import io
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import soundfile
import torch

from benchmarks.environment import describe
from benchmarks.front import used
from benchmarks.rows import Rows, add_rows_option
from benchmarks.services import free_port, wait_for
from bulk.file_transcripts import Options, Transcribed, transcribe_files
from models import default_dtype, load_model

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LENGTHS = (1.0, 1.5, 15.5)  # seconds of clips, triangular, 6 s on average
_CLIPS = 64
_ANSWER_SECONDS = 600.0
_START_SECONDS = 420.0  # on a GPU, kernels are compiled, budgets tried, and graphs captured


@dataclass(frozen=True, slots=True)
class Clip:
    """A file to upload, and its seconds."""

    name: str
    content: bytes
    seconds: float


def clips_of(audio: Path) -> list[Clip]:
    """Return clips of 6 s on average, cut from one recording of speech."""
    samples, rate = soundfile.read(audio, dtype="float32", always_2d=True)
    random = np.random.default_rng(0)
    clips = []
    for number, seconds in enumerate(random.triangular(*_LENGTHS, size=_CLIPS)):
        wanted = np.resize(np.roll(samples[:, 0], -int(random.integers(len(samples)))), round(seconds * rate))
        file = io.BytesIO()
        soundfile.write(file, wanted, rate, format="FLAC")
        clips.append(Clip(f"{number}.flac", file.getvalue(), len(wanted) / rate))
    return clips


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", type=Path, help="recording of speech, of which clips of 1 to 15 s are cut")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=4, help="how often each of 64 clips is transcribed in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--engines", type=int, default=1, help="of the service; several share all processors")
    parser.add_argument("--batch-seconds", type=float, help="of an engine, and of `transcribe`; default: each its own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="cpu or cuda; of both")
    add_rows_option(parser)
    args = parser.parse_args()

    about = describe(torch.device(args.device)) | {
        key: getattr(args, key) for key in ("model", "clients", "threads", "engines", "batch_seconds")
    }
    clips = clips_of(args.audio)
    files = list(clips) * args.repeats
    rows = Rows("served", about | {"audio_seconds": sum(clip.seconds for clip in files)}, args.rows)
    if missing := rows.missing((number,) for number in range(1, args.rounds + 1)):
        _measure(args, files, rows, [number for (number,) in missing])
    rounds = list(rows)
    walls = [row["alone"] / row["served"] for row in rounds]
    processors = [row["alone_processor"] / (row["front_processor"] + row["engine_processor"]) for row in rounds]
    for name, ratios in (("wall", walls), ("processor", processors)):
        print(f"{name:>9} {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    print(rows.line())


def _measure(args: argparse.Namespace, files: Sequence[Clip], rows: Rows, numbers: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, _serving(args) as (service, url):
        paths = _written(files, Path(folder))
        with _offline(args, paths) as offline:
            for number in (0, *numbers):
                offline.send(None)
                alone, alone_processor = offline.recv()
                before, began = used(service), time.process_time()
                wall = asyncio.run(_served(url, files, args.clients))
                since, ended = used(service), time.process_time()
                # No file here needs FFmpeg, so all children are the engine's.
                engine = since.engine + since.decoders - before.engine - before.decoders
                row = {"alone": alone, "served": wall, "alone_processor": alone_processor}
                row |= {"front_processor": since.front - before.front, "engine_processor": engine}
                row["client_processor"] = ended - began
                print("  ".join(f"{key} {value:.2f}" for key, value in row.items()), flush=True)
                if number:  # the first one warms up
                    rows.add((number,), row)


def _written(files: Sequence[Clip], folder: Path) -> list[str]:
    """Write clips to files, each clip once."""
    for clip in set(files):
        (folder / clip.name).write_bytes(clip.content)
    return [str(folder / clip.name) for clip in files]


@contextmanager
def _offline(args: argparse.Namespace, paths: Sequence[str]) -> Iterator["Connection"]:
    """Start a process that transcribes all files on each request, and sends its wall and processor time."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_transcribe, args=(theirs, args.model, paths, args.threads, args.batch_seconds, args.device), daemon=True
    )
    process.start()
    theirs.close()  # else the end of the process would not be seen here
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def _transcribe(
    parent: "Connection", name: str, paths: Sequence[str], threads: int, batch_seconds: float | None, where: str
) -> None:
    torch.set_num_threads(threads)
    device = torch.device(where)
    model = load_model(name, device, default_dtype(device))
    options = Options(batch_seconds=batch_seconds) if batch_seconds else Options()
    while True:
        parent.recv()
        began, processor = time.monotonic(), time.process_time()
        outcomes = list(transcribe_files(model, paths, options))
        took = time.monotonic() - began, time.process_time() - processor
        assert all(isinstance(one, Transcribed) for one in outcomes)
        parent.send(took)


@contextmanager
def _serving(args: argparse.Namespace) -> Iterator[tuple[int, str]]:
    port = free_port()
    on_cpu = args.device == "cpu"
    device = f"cpu:{args.engines}" if on_cpu else args.device
    threads = args.threads if on_cpu and args.engines == 1 else None
    serve = (
        "from service.server import run; from service.settings import Settings; "
        f"run(Settings(model={args.model!r}, port={port}, device={device!r}, "
        f"threads={threads}, batch_seconds={args.batch_seconds}, "
        "log_level='error', max_wait_seconds=3600))"
    )
    process = subprocess.Popen([sys.executable, "-c", serve])  # noqa: S603  # our own
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", seconds=_START_SECONDS)
        yield process.pid, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


async def _served(url: str, files: Sequence[Clip], clients: int) -> float:
    """Upload each file once; return the seconds."""
    left = iter(files)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS, limits=limits, trust_env=False) as client:

        async def ask() -> None:
            for clip in left:
                answer = await client.post("/v1/audio/transcriptions", files={"file": (clip.name, clip.content)})
                answer.raise_for_status()

        began = time.monotonic()
        await asyncio.gather(*(ask() for _ in range(clients)))
        return time.monotonic() - began


if __name__ == "__main__":
    main()
