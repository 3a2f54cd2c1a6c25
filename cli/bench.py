"""`steno bench`: measure how much load a running service takes."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import CommandError
from cli.numbers import count, positive

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cli.load import Answers, Upload
    from cli.model_options import Subparsers

_PERCENTILES = (50, 95, 99)


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "bench",
        help="measure how much load a running service takes",
        description="Upload recordings, drawn at random, to a service with OpenAI's audio API, and print RTFx "
        "(seconds of audio transcribed in a second), goodput (RTFx of the answers within the objective), "
        "latencies and errors. Name a recording twice to have it drawn twice as often. In an open loop, a latency "
        "counts from when its request was due, so it includes the time in which the client was late.",
    )
    parser.add_argument("url", help="such as http://localhost:8000")
    parser.add_argument("files", type=Path, nargs="+", help="recordings that soundfile reads")
    parser.add_argument("--model", help="unset: the service's default")
    parser.add_argument("--key", help="API key")
    load = parser.add_mutually_exclusive_group()
    load.add_argument(
        "--clients", type=count, default=16, help="closed loop: clients, with one request at a time each (default: 16)"
    )
    load.add_argument("--rate", type=positive, help="open loop: requests a second, at random times (Poisson)")
    parser.add_argument("--seconds", type=positive, default=30.0, help="how long to send (default: 30)")
    parser.add_argument(
        "--objective", type=positive, default=5.0, help="seconds within which an answer counts as goodput (default: 5)"
    )
    parser.add_argument(
        "--compare", action="store_true", help="upload each recording alone first; count transcripts that then differ"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of recordings and random times (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Put load on the service; return 1 if a request failed, or a transcript differs from its recording's alone."""
    import httpx

    uploads = [_upload(path, args) for path in args.files]
    try:
        answers, took = asyncio.run(_measure(args, uploads))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(f"{args.url}: {error or type(error).__name__}") from None
    report = _report(answers, took, args.objective)
    print(json.dumps(report) if args.json else _table(report))
    return 1 if answers.errors or answers.mismatches else 0


async def _measure(args: argparse.Namespace, uploads: Sequence[Upload]) -> tuple[Answers, float]:
    from tqdm import tqdm

    from cli.load import Load, alone, closed, connect, opened, poisson

    async with connect(args.url) as client:
        distinct = list({upload.name: upload for upload in uploads}.values())
        expected = await alone(client, distinct if args.compare else distinct[:1])  # one shows that requests succeed
        with tqdm(unit="answer", file=sys.stderr, disable=None) as bar:
            load = Load(client, args.objective, expected if args.compare else {}, bar.update)
            began = time.monotonic()
            if args.rate is None:
                await closed(load, uploads, args.clients, args.seconds, args.seed)
            else:
                await opened(load, uploads, poisson(args.rate, args.seconds, args.seed), args.seed)
        return load.answers, time.monotonic() - began


def _upload(path: Path, args: argparse.Namespace) -> Upload:
    import soundfile

    from cli.load import Upload

    try:
        return Upload.of(str(path), path.read_bytes(), soundfile.info(path).duration, args.model, args.key)
    except (OSError, soundfile.LibsndfileError) as error:
        raise CommandError(f"{path}: {error}") from None


def _report(answers: Answers, took: float, objective: float) -> dict[str, Any]:
    ordered = sorted(answers.latencies)
    return {
        "seconds": round(took, 3),
        "transcripts": len(ordered),
        "rtfx": round(answers.audio_seconds / took, 2),
        "goodput_rtfx": round(answers.good_audio_seconds / took, 2),
        "objective_seconds": objective,
        "latency_seconds": {
            f"p{percent}": round(ordered[math.ceil(percent / 100 * len(ordered)) - 1], 4) for percent in _PERCENTILES
        }
        if ordered
        else {},
        "mismatches": answers.mismatches,
        "errors": dict(sorted(answers.errors.items())),
    }


def _table(report: dict[str, Any]) -> str:
    latencies = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in report["latency_seconds"].items())
    errors = ", ".join(f"{count} x {kind}" for kind, count in report["errors"].items())
    return (
        f"{report['transcripts']} transcripts in {report['seconds']:.1f} s: RTFx {report['rtfx']:.1f}, "
        f"goodput {report['goodput_rtfx']:.1f} within {report['objective_seconds']:g} s\n"
        f"latency: {latencies or 'none'}\nmismatches: {report['mismatches']}\nerrors: {errors or 'none'}"
    )
