"""What a running service takes: `python -m benchmarks load FILE... --url URL`, clients that ask again once answered.

Each of the clients uploads one of the recordings after the other, drawn at random, as long as the measurement lasts.
Answers that began before it are not counted. A refusal is counted by its status, and its client waits as it was told.
"""

import argparse
import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import soundfile
import torch
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import Latency

_PATH = "/v1/audio/transcriptions"
_WARM_UP_SECONDS = 5.0
_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Upload:
    """A request with a recording, made out once, and the seconds of the recording."""

    content: bytes
    headers: dict[str, str]
    seconds: float

    @classmethod
    def of(cls, name: str, recording: bytes, seconds: float, model: str) -> "Upload":
        """Put the form together."""
        form = httpx.Request("POST", "http://any", files={"file": (name, recording)}, data={"model": model})
        return cls(form.read(), {"content-type": form.headers["content-type"]}, seconds)


@dataclass(slots=True)
class Answers:
    """What the clients got: the latency of each transcript, their audio, and how often each status."""

    latencies: list[float] = field(default_factory=list)
    audio_seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)


async def ask(client: httpx.AsyncClient, uploads: Sequence[Upload], seconds: float, seed: int) -> Answers:
    """Upload one recording after the other for so many seconds."""
    answers, chosen = Answers(), random.Random(seed)  # noqa: S311  # nothing is kept secret
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        upload = chosen.choice(uploads)
        answer = await client.post(_PATH, content=upload.content, headers=upload.headers)
        answers.statuses[answer.status_code] += 1
        if answer.is_success:
            answers.latencies.append(time.monotonic() - began)
            answers.audio_seconds += upload.seconds
        else:
            told = float(answer.headers.get("retry-after", 1))
            await asyncio.sleep(min(told, max(0.0, end - time.monotonic())))
    return answers


async def loaded(
    url: str, uploads: Sequence[Upload], clients: int, seconds: float, warm_up_seconds: float
) -> tuple[Answers, float]:
    """Return what so many clients got after a warm-up, and the seconds until the last of them was answered."""
    trusted = ssl.create_default_context()
    async with AsyncExitStack() as stack:
        # Each has a connection of its own: a pool looks through all of its connections at every request.
        each = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_SECONDS, verify=trusted, trust_env=False)
            )
            for _ in range(clients)
        ]
        await asyncio.gather(*(ask(client, uploads, warm_up_seconds, seed) for seed, client in enumerate(each)))
        began = time.monotonic()
        answered = await asyncio.gather(
            *(ask(client, uploads, seconds, clients + seed) for seed, client in enumerate(each))
        )
        took = time.monotonic() - began
    every = Answers()
    for answers in answered:
        every.latencies += answers.latencies
        every.audio_seconds += answers.audio_seconds
        every.statuses += answers.statuses
    return every, took


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="recordings that soundfile reads")
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", default="whisper-1", help="the default is the service's own")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=30.0, help="of the measurement, after some that are not")
    add_rows_option(parser)
    args = parser.parse_args()

    uploads = [
        Upload.of(path.name, path.read_bytes(), soundfile.info(path).duration, args.model) for path in args.files
    ]
    about = {"url": args.url, "model": args.model, "files": len(uploads), "measured_seconds": args.seconds}
    rows = Rows("load", about | describe(torch.device("cpu")), args.rows)
    for (clients,) in tqdm(rows.missing((count,) for count in args.clients), unit="cell", disable=None):
        answers, took = asyncio.run(loaded(args.url, uploads, clients, args.seconds, _WARM_UP_SECONDS))
        latency = Latency.of(answers.latencies).row() if answers.latencies else {}
        statuses = {str(status): count for status, count in sorted(answers.statuses.items())}
        rows.add(
            (clients,), {"clients": clients, "rtfx": answers.audio_seconds / took, "statuses": statuses, **latency}
        )
    print(f"{'clients':>7} {'RTFx':>8} {'p50 s':>7} {'p95 s':>7} {'p99 s':>7}  statuses")
    for row in rows:
        times = " ".join(f"{row[key]:7.2f}" if key in row else " " * 7 for key in ("p50", "p95", "p99"))
        print(f"{row['clients']:7d} {row['rtfx']:8.1f} {times}  {row['statuses']}")
    print(rows.line())


if __name__ == "__main__":
    main()
