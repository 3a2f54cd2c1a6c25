"""Policies of a load balancer, measured: real replicas behind HAProxy with the configuration of docker compose.

`python -m benchmarks policies samples/austen.flac`: short clips and long recordings are cut from one recording and
arrive at random times, the same for each policy; each round measures every policy. `python -m benchmarks balancing`
simulates policies. Needs haproxy and Linux, where all of 127.0.0.0/8 is this machine.

    round robin                   to each in turn
    least connections             to the one with the fewest requests under way
    least connections by weight   the same, with weights by the audio that waits in each replica (agent checks)
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import soundfile

from benchmarks.services import free_port, wait_for
from cli.load import Load, Upload, alone, connect, opened, poisson

CONFIGURATION = Path(__file__).resolve().parent.parent / "deploy" / "compose" / "haproxy.cfg"
POLICIES = {
    "round robin": ("roundrobin", False),
    "least connections": ("leastconn", False),
    "least connections by weight": ("leastconn", True),
}
_AGENT_SECONDS = 0.2
# Seconds of waiting audio that halve a replica's weight: about what waits under full load.
_HALVING_SECONDS = 30.0


@dataclass(slots=True)
class Pooled:
    """Latencies of a policy over all rounds."""

    short: list[float] = field(default_factory=list)
    long: list[float] = field(default_factory=list)
    errors: int = 0


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", type=Path, help="recording of speech")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rate", type=float, default=3.0, help="requests a second")
    parser.add_argument("--long-every", type=int, default=30, help="one request in N is long")
    parser.add_argument("--short-seconds", type=float, nargs=2, default=[1.0, 4.0])
    parser.add_argument("--long-seconds", type=float, default=120.0)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="seconds of arrivals, for each policy in each round"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    pooled = asyncio.run(_measured(args))
    rows = []
    print(f"{'policy':28} {'short p50':>10} {'short p99':>10} {'long p50':>9} {'requests':>9} {'errors':>7}")
    for policy, found in pooled.items():
        p50, p99 = (round(float(value), 3) for value in np.percentile(found.short, [50, 99]))
        long_p50, count = round(float(np.median(found.long)), 3), len(found.short) + len(found.long)
        row = {"policy": policy, "p50": p50, "p99": p99, "long_p50": long_p50, "requests": count}
        rows.append(row | {"errors": found.errors})
        print(f"{policy:28} {p50:10.2f} {p99:10.2f} {long_p50:9.2f} {count:9} {found.errors:7}")
    about = {name: getattr(args, name) for name in ("replicas", "rate", "long_every", "long_seconds", "rounds")}
    print(json.dumps({"benchmark": "policies", **about, "cores": os.cpu_count(), "rows": rows}))


async def _measured(args: argparse.Namespace) -> dict[str, Pooled]:
    short, long = _uploads(args)
    pooled = {policy: Pooled() for policy in POLICIES}
    async with _replicas(args.replicas) as (addresses, port):
        for turn in range(args.rounds):
            for policy, found in pooled.items():
                balance, weighted = POLICIES[policy]
                async with _agents(addresses, port) as agent_port:
                    with _balancer(addresses, port, balance, agent_port if weighted else None) as url:
                        await _loaded(url, short, long, found, args, turn)
                print(f"round {turn + 1}, {policy}", file=sys.stderr)
    return pooled


async def _loaded(
    url: str, short: Sequence[Upload], long: Sequence[Upload], found: Pooled, args: argparse.Namespace, turn: int
) -> None:
    """Upload the requests of one round, and wait for all answers."""
    seed = args.seed + turn
    long_rate = args.rate / args.long_every
    async with connect(url) as client:
        await asyncio.to_thread(wait_for, f"{url}/healthz")
        await alone(client, short[:1])
        loads = Load(client, 1.0, {}), Load(client, 1.0, {})
        arrivals = (
            poisson(args.rate - long_rate, args.seconds, 1, 2 * seed),
            poisson(long_rate, args.seconds, 1, 2 * seed + 1),
        )
        await asyncio.gather(
            *(
                opened(load, uploads, list(times), seed)
                for load, uploads, times in zip(loads, (short, long), arrivals, strict=True)
            )
        )
    found.short += loads[0].answers.latencies
    found.long += loads[1].answers.latencies
    found.errors += sum(load.answers.errors.total() for load in loads)


def _uploads(args: argparse.Namespace) -> tuple[list[Upload], list[Upload]]:
    samples, rate = soundfile.read(args.audio, dtype="float32", always_2d=True)
    samples = np.tile(samples[:, 0], int(args.long_seconds * rate / len(samples)) + 1)

    def cut(seconds: float) -> Upload:
        file = io.BytesIO()
        soundfile.write(file, samples[: int(seconds * rate)], rate, format="FLAC")
        return Upload.of(f"{seconds:g}.flac", file.getvalue(), seconds, None, None)

    shortest, longest = args.short_seconds
    return [cut(float(seconds)) for seconds in np.linspace(shortest, longest, 16)], [cut(args.long_seconds)]


@contextlib.asynccontextmanager
async def _replicas(number: int) -> AsyncIterator[tuple[list[str], int]]:
    """Start ``number`` services with the bundled model; yield their addresses and their port."""
    addresses = [f"127.0.0.{51 + each}" for each in range(number)]
    port = free_port(addresses[0])
    threads = max(1, (os.cpu_count() or 1) // number)
    with contextlib.ExitStack() as running:
        for address in addresses:
            arguments = ["serve", "--host", address, "--port", str(port), "--threads", str(threads)]
            command = [sys.executable, "-m", "cli", *arguments, "--log-level", "error"]
            running.callback(_end, _start(command))
        for address in addresses:
            await asyncio.to_thread(wait_for, f"http://{address}:{port}/readyz")
        yield addresses, port


@contextlib.contextmanager
def _balancer(addresses: Sequence[str], port: int, balance: str, agent_port: int | None) -> Iterator[str]:
    """Start HAProxy with compose's configuration, for these addresses; yield its URL."""
    text = CONFIGURATION.read_text(encoding="utf-8").replace(" resolvers names init-addr none", "")
    agent = f" weight 100 agent-check agent-port {agent_port} agent-inter 200ms" if agent_port else ""
    servers = "\n".join(f"    server {address} {address}:{port}{agent}" for address in addresses)
    text, found = re.subn(r"^    server-template .*$", servers, text, flags=re.MULTILINE)
    assert found == 1, CONFIGURATION
    listen = free_port("127.0.0.1")
    settings = {"LISTEN": f"127.0.0.1:{listen}", "LISTEN_METRICS": f"127.0.0.1:{free_port('127.0.0.1')}"}
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(text)
        file.flush()
        environment = os.environ | settings | {"BALANCE": balance, "NAMESERVER": "127.0.0.1:53"}
        process = _start(["haproxy", "-q", "-f", file.name], environment)
        try:
            yield f"http://127.0.0.1:{listen}"
        finally:
            _end(process)


@contextlib.asynccontextmanager
async def _agents(addresses: Sequence[str], port: int) -> AsyncIterator[int]:
    """Answer HAProxy's agent checks at each address with a weight by the audio that waits there; yield the port."""
    weights = dict.fromkeys(addresses, 100)

    async def look() -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                for address in addresses:
                    text = (await client.get(f"http://{address}:{port}/metrics")).text
                    weights[address] = _weight(text)
                await asyncio.sleep(_AGENT_SECONDS)

    agent_port = free_port(addresses[0])
    async with contextlib.AsyncExitStack() as serving:
        for address in addresses:

            async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str = address) -> None:
                writer.write(f"{weights[address]}%\n".encode())
                await writer.drain()
                writer.close()

            await serving.enter_async_context(await asyncio.start_server(answer, address, agent_port))
        looking = asyncio.create_task(look())
        try:
            yield agent_port
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking


def _weight(metrics: str) -> int:
    waiting = sum(
        float(value) for value in re.findall(r"^steno_queue_audio_seconds\{.*\} (\S+)$", metrics, re.MULTILINE)
    )
    return max(1, round(100 * _HALVING_SECONDS / (_HALVING_SECONDS + waiting)))


def _start(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=nowhere, stderr=nowhere)  # noqa: S603  # our own


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


if __name__ == "__main__":
    main()
