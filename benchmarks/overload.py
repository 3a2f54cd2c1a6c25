"""Overload: more requests than a service can answer. How fast does it refuse, and is its Retry-After right?

    steno serve --port 8000
    python -m benchmarks overload http://127.0.0.1:8000 samples/austen.flac --rate 80 --seconds 60

Requests come at random times, whether earlier ones were answered or not. Each opens a connection of its own; its time
includes that. One more client requests /healthz, 0.1 s after each answer. The Retry-After of a refusal is divided by
the time from the next accepted request to its answer. `--bare PORT` runs a server that refuses everything at once, to
measure the cost of the clients themselves. Goodput is the RTFx of the answers that came while requests were sent, after
the first `--settle` seconds, in which the queue fills.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import soundfile
import uvloop

_PROBE_SECONDS = 0.1
_TIMEOUT_SECONDS = 600.0
_FACTOR = 2.0
_REFUSED = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one request.

    Attributes:
        began: time of the monotonic clock.
        seconds: time until the end of its answer.
        status: HTTP status; 0 if the connection broke or timed out, or the answer is not HTTP.
        retry_after: seconds of the Retry-After; None without one, or if it is a date.
    """

    began: float
    seconds: float
    status: int
    retry_after: float | None


async def request(host: str, port: int, sent: bytes) -> Outcome:
    """Send the bytes of a request, and read the whole answer."""
    began = time.monotonic()
    status, retry_after = 0, None
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(sent)
                head = await reader.readuntil(b"\r\n\r\n")
                status, headers = int(head.split(maxsplit=2)[1]), _headers(head)
                if "content-length" in headers:
                    await reader.readexactly(int(headers["content-length"]))
                else:  # the answer ends with the connection
                    await reader.read()
                waiting = headers.get("retry-after", "")
                retry_after = float(waiting) if waiting.isdecimal() else None
                took = time.monotonic() - began
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError, IndexError):
        return Outcome(began, time.monotonic() - began, 0, None)
    return Outcome(began, took, status, retry_after)


def _headers(head: bytes) -> dict[str, str]:
    """Return the headers of a request or an answer, by their names in lower case."""
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:-2])
    return {name.lower(): value.strip() for name, _, value in lines}


async def load(host: str, port: int, upload: bytes, rate: float, seconds: float, seed: int) -> "Measured":
    """Send ``rate`` requests a second on average for ``seconds``, and wait for all answers."""
    chosen, began = random.Random(seed), time.monotonic()  # noqa: S311
    due, late, outcomes = 0.0, [], []
    probe = f"GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()
    async with asyncio.TaskGroup() as group:
        probing = asyncio.create_task(_probe(host, port, probe))
        while (due := due + chosen.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            late.append(time.monotonic() - began - due)
            outcomes.append(group.create_task(request(host, port, upload)))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        offered = time.monotonic() - began
        probes = await _stop(probing)
    return Measured([task.result() for task in outcomes], probes, late, began, offered)


async def _probe(host: str, port: int, sent: bytes) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        while True:
            outcomes.append(await request(host, port, sent))
            await asyncio.sleep(_PROBE_SECONDS)
    except asyncio.CancelledError:
        return outcomes


async def _stop(probing: "asyncio.Task[list[Outcome]]") -> list[Outcome]:
    probing.cancel()
    return await probing


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcomes of a load.

    Attributes:
        outcomes: outcomes of the uploads, in order.
        probes: outcomes of requests for /healthz.
        late: seconds by which each upload began late; the clients' processor was busy.
        began: time of the monotonic clock.
        offered_seconds: how long uploads were sent.
    """

    outcomes: Sequence[Outcome]
    probes: Sequence[Outcome]
    late: Sequence[float]
    began: float
    offered_seconds: float

    def report(self, audio_seconds: float, settle: float) -> dict[str, object]:
        """Return the figures for recordings of ``audio_seconds``; goodput leaves out the first ``settle`` seconds."""
        answered = [one for one in self.outcomes if one.status == 200]
        refused = [one for one in self.outcomes if one.status == 503]
        measured = [
            self.began + settle < one.began + one.seconds <= self.began + self.offered_seconds for one in answered
        ]
        ratios = retry_after_ratios(refused, answered)
        return {
            "seconds": round(self.offered_seconds, 1),
            "requests": len(self.outcomes),
            "statuses": dict(Counter(str(one.status) for one in self.outcomes)),
            "goodput_rtfx": round(sum(measured) * audio_seconds / (self.offered_seconds - settle), 2),
            "refused_ms": _spread([1000 * one.seconds for one in refused]),
            "healthz_ms": _spread([1000 * one.seconds for one in self.probes if one.status == 200]),
            "healthz_statuses": dict(Counter(str(one.status) for one in self.probes)),
            "answered_s": _spread([one.seconds for one in answered]),
            "retry_after_s": _spread([one.retry_after for one in refused if one.retry_after is not None]),
            "retry_after_over_wait": _spread(ratios),
            "within_factor_2": round(statistics.fmean(map(_is_near, ratios)), 3) if ratios else None,
            "clients_late_ms": _spread([1000 * one for one in self.late]),
        }


def retry_after_ratios(refused: Sequence[Outcome], answered: Sequence[Outcome]) -> list[float]:
    """Return the Retry-After of each refusal divided by the seconds that the next accepted request took."""
    accepted = sorted(answered, key=lambda one: one.began)
    ratios, following = [], 0
    for one in sorted(refused, key=lambda one: one.began):
        while following < len(accepted) and accepted[following].began < one.began:
            following += 1
        if following < len(accepted) and one.retry_after is not None:
            ratios.append(one.retry_after / accepted[following].seconds)
    return ratios


def _is_near(ratio: float) -> bool:
    return 1 / _FACTOR <= ratio <= _FACTOR


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)
        for name, share in (("p1", 0.01), ("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        if ordered
    }


async def _serve_bare(port: int) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = _headers(await reader.readuntil(b"\r\n\r\n"))
        writer.write(_REFUSED)
        await reader.readexactly(int(headers.get("content-length", "0")))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", port, limit=1 << 24, backlog=2048) as server:
        await server.serve_forever()


def main() -> None:
    """Parse, load, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("file", nargs="?", type=Path, default=Path("samples/austen.flac"))
    parser.add_argument("--rate", type=float, default=80.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bare", type=int, metavar="PORT", help="send nothing; refuse all requests to this port")
    args = parser.parse_args()
    if args.rate <= 0:
        parser.error("--rate must be above 0")
    if args.settle >= args.seconds:
        parser.error(f"--settle, {args.settle:g} s, must be less than --seconds, {args.seconds:g} s")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if args.bare is not None:
            runner.run(_serve_bare(args.bare))
        where = urlsplit(args.url)
        form = httpx.Request(
            "POST",
            f"http://{where.netloc}/v1/audio/transcriptions",
            files={"file": (args.file.name, args.file.read_bytes())},
            data={"model": "whisper-1"},
        )
        lines = [f"{name}: {value}\r\n" for name, value in form.headers.items()]
        head = f"POST {form.url.path} HTTP/1.1\r\n{''.join(lines)}connection: close\r\n\r\n"
        sent, host, port = head.encode() + form.read(), where.hostname or "", where.port or 80
        measured = runner.run(load(host, port, sent, args.rate, args.seconds, args.seed))
    report = measured.report(soundfile.info(args.file).duration, args.settle)
    for name, value in report.items():
        print(f"{name:>22} {value}")
    print(json.dumps({"benchmark": "overload", "rate": args.rate, **report}))


if __name__ == "__main__":
    main()
