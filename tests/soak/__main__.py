"""A service under mixed traffic and faults for a while: every answer accounted for, and everything given back.

    make soak                                        twenty minutes on the bundled model, a fault every ten seconds
    make soak ARGS='--minutes 2 --seed 7'            the same traffic and faults again, as far as times allow
    make soak ARGS='--http-processes 2'              with several HTTP processes, which are killed too

It ends with 1 if an answer was wrong that no fault explains, a transcript was not that of the recording alone, or
memory, descriptors, threads, processes or files are not back at their level.
"""

import argparse
import asyncio
import contextlib
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.service.serving import form, metric
from tests.soak.account import Account
from tests.soak.clients import Clients
from tests.soak.faults import Faults
from tests.soak.processes import Level
from tests.soak.recordings import recordings

_ROOT = Path(__file__).resolve().parents[2]
_SECOND = _ROOT / "tests" / "data" / "golden" / "quartznet-small" / "model.nemo"
_READY_SECONDS = 900.0
_QUIET_SECONDS = 300.0
# The service must answer before its clients lose patience.
_REQUEST_SECONDS = 240
_OF_REST = ("steno_http_requests_in_flight{", "steno_connections ", "steno_queue_depth{", "steno_engine_up{")


def say(what: str) -> None:
    """Print a line with the time since the start."""
    print(f"{time.monotonic() - _STARTED:8.1f} s  {what}", flush=True)


_STARTED = time.monotonic()


@contextlib.contextmanager
def service(folder: Path, *command: str, **environment: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Run a service until the block ends; yields its URL and its process."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    files = folder / "files"
    files.mkdir()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *(part.format(port=port) for part in command)],
            stderr=log,
            cwd=_ROOT,
            env=dict(os.environ) | {"TMPDIR": str(files), "PYTHONWARNINGS": "ignore"} | environment,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_ready(url, process)
        yield url, process
        process.terminate()
        status = process.wait(_QUIET_SECONDS)
        if status:
            raise SystemExit(f"the service ended with {status}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        time.sleep(0.1)
    raise SystemExit("the service did not become ready")


def at_rest(url: str, process: "subprocess.Popen[bytes]", folder: Path) -> Level:
    """Return its level once nothing is under way."""
    began = time.monotonic()
    end, seen = time.monotonic() + _QUIET_SECONDS, "no answer"
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the service ended with {process.returncode}")
        with contextlib.suppress(httpx.TransportError):
            ready = httpx.get(f"{url}/readyz", trust_env=False)
            text = httpx.get(f"{url}/metrics", trust_env=False).text
            seen = "\n".join([ready.text, *(line for line in text.splitlines() if line.startswith(_OF_REST))])
            busy = metric(text, "steno_http_requests_in_flight") if "steno_http_requests_in_flight{" in text else 0
            if ready.status_code == 200 and busy <= 1 and metric(text, "steno_connections") <= 1:  # the one that asks
                rest = time.monotonic() - began
                time.sleep(11.0)  # a collection of garbage later
                level = Level.of(process.pid, folder / "files")
                say(f"at rest after {rest:.1f} s: {level}")
                return level
        time.sleep(0.5)
    raise SystemExit(f"the service did not come to rest:\n{seen}")


def mixed(args: argparse.Namespace, folder: Path) -> tuple[Account, list[str]]:
    """Run traffic of all kinds with faults."""
    keys = [secrets.token_hex(16) for _ in range(2)]
    entries = ",".join(f"user{index}:{_digest(key)}" for index, key in enumerate(keys))
    flags = ("--port", "{port}", "--log-format", "json", "--log-level", "info")
    # In bfloat16, the shape of a batch decides how sums are rounded, and now and then a token that was won by a hair.
    environment = {
        "STENO_HTTP_PROCESSES": str(args.http_processes),
        "STENO_DTYPE": "float32",
        "STENO_REQUEST_TIMEOUT_SECONDS": str(_REQUEST_SECONDS),
        "STENO_MAX_WAIT_SECONDS": str(_REQUEST_SECONDS),  # a slow machine must not refuse what it can answer
        "STENO_API_KEYS": entries,
        "STENO_MODELS_ON_DEMAND": f"second={_SECOND}",
        "STENO_MODEL_TTL": "1",
    }
    account, files = Account(), recordings(folder)
    with service(folder, "cli", "serve", *flags, **environment) as (url, process):
        headers = {"authorization": f"Bearer {keys[0]}"}
        with httpx.Client(base_url=url, timeout=_READY_SECONDS, headers=headers, trust_env=False) as client:
            expected = {
                one.name: client.post("/v1/audio/transcriptions", **form(one.content, one.name)).json()["text"]
                for one in files
            }
        say(f"{len(files)} recordings have transcripts")
        clients = Clients(url, keys, files, expected, account)
        faults = Faults(process.pid, url, account, args.every)

        async def load(minutes: float, *, with_faults: bool) -> None:
            until = time.monotonic() + 60 * minutes
            work = [clients.run(f"{args.seed}/{number}/{with_faults}", until) for number in range(args.clients)]
            if with_faults:
                work.append(faults.run(f"{args.seed}/faults", until, say))
            await asyncio.gather(*work, clients.second_model(until))

        asyncio.run(load(min(1.0, args.minutes / 4), with_faults=False))
        before = at_rest(url, process, folder)
        asyncio.run(load(args.minutes, with_faults=True))
        after = at_rest(url, process, folder)
    return account, before.excess(after)


def _replayable(arguments: list[str], seed: int) -> str:
    return " ".join(arguments if "--seed" in arguments else [*arguments, f"--seed {seed}"])


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _keep(log: Path, seed: int) -> None:
    if log.exists():
        kept = Path(tempfile.gettempdir()) / f"soak-{seed}.log"
        kept.write_text(log.read_text())
        say(f"the log of the service: {kept}")


def main() -> int:
    """Parse, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of traffic with faults")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between faults")
    parser.add_argument("--clients", type=int, default=12, help="at once")
    parser.add_argument("--http-processes", type=int, default=1, help="before the dispatcher")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and its service with it
    say(f"seed {args.seed}: make soak ARGS='{_replayable(sys.argv[1:], args.seed)}'")
    with tempfile.TemporaryDirectory() as folder:
        try:
            account, excess = mixed(args, Path(folder))
        except BaseException:
            _keep(Path(folder) / "log", args.seed)
            raise
        wrong = [*account.violations, *(f"not given back: {line}" for line in excess)]
        tracebacks = (Path(folder) / "log").read_text().count('"event": "request failed"')
        if wrong or tracebacks:
            _keep(Path(folder) / "log", args.seed)
    print(account.report())
    print(f"requests that failed with a traceback in the log: {tracebacks}")
    print(*(f"WRONG: {line}" for line in wrong[:40]), sep="\n")
    print(f"seed {args.seed}: {sum(account.outcomes.values())} answers, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
