"""Wait of clips beside recordings of hours, measured on a service with a real engine.

    python -m benchmarks beside samples/austen.flac

Clips and long recordings are made of one recording of speech, which is repeated. A closed loop of clips first measures
the speed of the service. Then the long recordings are uploaded, and while they are transcribed, clips arrive at random,
at a share of that speed. The wait in the queue comes from the service's log, the time of a mean batch from its metrics.
The wait in seconds depends on the machine and its other load; the wait in mean batches hardly does.
"""

import argparse
import asyncio
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
import soundfile

from benchmarks.services import free_port, wait_for
from cli.load import Load, Upload, closed, connect, opened, poisson

_START_SECONDS = 120.0  # for the first batches of the long recordings
_LENGTHS = (1.0, 1.5, 15.5)  # triangular, 6 s on average
_CLIPS = 64
_CALIBRATION_SECONDS = 10.0
_CALIBRATION_CLIENTS = 16


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", type=Path, help="recording of speech")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.2, 0.33], help="of the speed")
    parser.add_argument("--burst", type=int, default=1, help="clips that arrive together")
    parser.add_argument("--long", type=int, default=3, help="long recordings under way")
    parser.add_argument("--long-seconds", type=float, default=3600.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="for which clips arrive, at each share")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--passed-over", type=int, help="sets STENO_MAX_PASSED_OVER")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    clips, long = uploads(args.audio, args.long_seconds, args.seed)
    rows = []
    for share in args.shares:
        row = _measured(args, clips, long, share)
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    options = ("model", "burst", "long", "long_seconds", "seconds", "threads", "passed_over", "seed")
    about = {key: getattr(args, key) for key in options}
    print(json.dumps({"benchmark": "beside", **about, "cores": os.cpu_count(), "rows": rows}))


def uploads(audio: Path, long_seconds: float, seed: int) -> tuple[list[Upload], Upload]:
    """Return clips of 6 s on average, and a long recording."""
    samples, rate = soundfile.read(audio, dtype="float32", always_2d=True)
    random = np.random.default_rng(seed)
    clips = []
    for number, seconds in enumerate(random.triangular(*_LENGTHS, size=_CLIPS)):
        wanted = np.resize(np.roll(samples[:, 0], -int(random.integers(len(samples)))), round(seconds * rate))
        clips.append(_upload(f"{number}.flac", wanted, rate))
    return clips, _upload("long.flac", np.resize(samples[:, 0], round(long_seconds * rate)), rate)


def _upload(name: str, samples: npt.NDArray[np.float32], rate: int) -> Upload:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC")
    return Upload.of(name, file.getvalue(), len(samples) / rate, None, None)


def _measured(args: argparse.Namespace, clips: Sequence[Upload], long: Upload, share: float) -> dict[str, float | None]:
    port = free_port()
    command = [sys.executable, "-m", "cli", "serve", "--model", args.model, "--port", str(port), "--log-format", "json"]
    command += ["--threads", str(args.threads)] if args.threads else []
    environment = dict(os.environ)
    if args.passed_over:
        environment["STENO_MAX_PASSED_OVER"] = str(args.passed_over)
    with tempfile.TemporaryFile() as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, env=environment)  # noqa: S603  # our own
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            row, span = asyncio.run(_loaded(args, f"http://127.0.0.1:{port}", clips, long, share))
        finally:
            service.terminate()
            service.wait()
        log.seek(0)
        return row | queue_of(log.read().decode().splitlines(), span, row["batch_s"])


async def _loaded(
    args: argparse.Namespace, url: str, clips: Sequence[Upload], long: Upload, share: float
) -> tuple[dict[str, float], tuple[float, float]]:
    async with connect(url) as client:
        calibration = Load(client, 1.0, {})
        began = time.monotonic()
        await closed(calibration, clips, _CALIBRATION_CLIENTS, _CALIBRATION_SECONDS, args.seed)
        rtfx = calibration.answers.audio_seconds / (time.monotonic() - began)

        recordings = [asyncio.create_task(Load(client, 1.0, {}).ask(long)) for _ in range(args.long)]
        await _until_long_under_way(url)
        before, since = await _batches(url), time.time()
        rate = share * rtfx / float(np.mean([clip.seconds for clip in clips]))
        load = Load(client, 1.0, {})
        await opened(load, clips, list(poisson(rate, args.seconds, args.burst, args.seed)), args.seed)
        still_long = not any(task.done() for task in recordings)
        after, until = await _batches(url), time.time()
        for task in recordings:
            task.cancel()
        await asyncio.gather(*recordings, return_exceptions=True)
    count, seconds, audio = (ended - began for ended, began in zip(after, before, strict=True))
    row = {
        "share": share,
        "rtfx": round(rtfx, 1),
        "rate": round(rate, 2),
        "errors": load.answers.errors.total(),
        "long_to_the_end": still_long,
        "batches": int(count),
        "batch_s": round(seconds / max(1.0, count), 4),
        "all_rtfx": round(audio / (until - since), 1),
    }
    return row, (since, until)


def queue_of(lines: Sequence[str], span: tuple[float, float], batch: float) -> dict[str, float | None]:
    """Return percentiles of the clips' wait in the queue, for answers in a span; each is None without clips.

    Args:
        lines: lines of the service's log.
        span: first and last moment, in Unix time.
        batch: seconds of a mean batch.
    """
    since, until = span
    waits = []
    for line in lines:
        entry = json.loads(line) if line.startswith("{") else {}
        is_clip = entry.get("endpoint") == "transcriptions" and entry.get("audio_seconds", 100.0) < _LENGTHS[2] + 1
        if (
            is_clip
            and entry.get("status") == 200
            and since <= datetime.fromisoformat(entry["time"]).timestamp() <= until + 1  # the line follows the answer
        ):
            waits.append(entry["queue_seconds"])
    if not waits:
        return {"clips": 0, "queue_p50_s": None, "queue_p99_s": None, "p50_batches": None, "p99_batches": None}
    p50, p99 = (float(value) for value in np.percentile(waits, (50, 99)))
    return {
        "clips": len(waits),
        "queue_p50_s": round(p50, 3),
        "queue_p99_s": round(p99, 3),
        "p50_batches": round(p50 / batch, 2),
        "p99_batches": round(p99 / batch, 2),
    }


async def _batches(url: str) -> tuple[float, float, float]:
    """Return the number of all batches so far, their seconds, and the seconds of audio in them."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"{url}/metrics")).text

    def total(name: str) -> float:
        return sum(float(value) for value in re.findall(rf"^steno_batch_{name}{{.*}} (\S+)$", text, re.MULTILINE))

    return total("duration_seconds_count"), total("duration_seconds_sum"), total("audio_seconds_total")


async def _until_long_under_way(url: str) -> None:
    """Wait for three more batches; the clips before are answered, so these are of long recordings."""
    before, _, _ = await _batches(url)
    async with asyncio.timeout(_START_SECONDS):
        while True:
            if (await _batches(url))[0] >= before + 3:
                return
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    main()
