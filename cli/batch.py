"""`steno batch`: transcribe an archive into shards of rows."""

import argparse
import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from bulk.rows import DETAILS, Tally
from bulk.storage import Folder, absolute
from cli.model_options import Subparsers, add_model_options, open_model, transcription_options
from cli.numbers import positive

if TYPE_CHECKING:
    from bulk.job import Job
    from bulk.on_ray import RayEngine
    from bulk.transcription import LocalEngine

# A job continues only with the same options, except these, which its rows do not depend on.
_MAY_CHANGE = {"command", "run", "output", "engine", "device", "batch_seconds", "shard_hours"}


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "batch",
        help="transcribe an archive, here or on a cluster",
        description="Transcribe the recordings of a manifest, a folder or a prefix of an object store, each once, into "
        "shards in a folder or under a prefix. A recording that fails is a row with its error. Run it again after it "
        "was killed: finished shards are kept. The last line is one JSON object.",
    )
    parser.add_argument("input", metavar="INPUT", help="JSON Lines with audio and, if known, duration; or a folder")
    parser.add_argument(
        "output", metavar="OUTPUT", help="folder for this job alone; like INPUT, a path or an fsspec URL"
    )
    parser.add_argument(
        "--detail",
        choices=DETAILS,
        default="words",
        help="what a row holds: text alone; words with times and confidence (default)",
    )
    parser.add_argument(
        "--shard-hours", type=positive, default=1.0, metavar="N", help="audio in a shard (default: %(default)g)"
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="local: one device, here; ray: every device of a Ray cluster (RAY_ADDRESS, else this machine)",
    )
    add_model_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Transcribe what is left of a job, and print a summary."""
    from tqdm import tqdm

    from bulk.entries import entries
    from bulk.job import open_job

    began = time.perf_counter()
    args.input, args.output = absolute(args.input), absolute(args.output)
    settings = {name: value for name, value in vars(args).items() if name not in _MAY_CHANGE}
    job = open_job(Folder(args.output), settings, partial(entries, args.input), 3600 * args.shard_hours)
    if job.earlier.recordings:
        print(f"{job.earlier.recordings} recordings were done before, {job.recordings_left} are left", file=sys.stderr)
    done, devices = Tally(), 0
    if job.left:
        engine = _engine(args)
        with tqdm(total=job.recordings_left, unit="recording", smoothing=0.05, disable=None) as bar:
            so_far = Tally()

            def progress(more: Tally) -> None:
                nonlocal so_far
                so_far += more
                bar.set_postfix(failed=so_far.failed, RTFx=round(so_far.seconds / (time.perf_counter() - began), 1))
                bar.update(more.recordings + more.left_out)

            done = engine.run(job, progress)
        devices = engine.devices
    return _report(job, done, devices, time.perf_counter() - began)


def _engine(args: argparse.Namespace) -> "LocalEngine | RayEngine":
    options = transcription_options(args)
    if args.engine == "ray":
        from bulk.on_ray import RayEngine

        return RayEngine(partial(open_model, args), options, args.device)
    from bulk.transcription import LocalEngine

    return LocalEngine(open_model(args), options)


def _report(job: "Job", done: Tally, devices: int, elapsed: float) -> int:
    whole = job.earlier + done
    rtfx = done.seconds / elapsed
    summary = {
        "recordings": whole.recordings,
        "failed": whole.failed,
        "left_out": whole.left_out,
        "hours": whole.seconds / 3600,
        "run": {
            "recordings": done.recordings,
            "hours": done.seconds / 3600,
            "seconds": elapsed,
            "devices": devices,
            "rtfx": rtfx,
        },
    }
    if not (whole.left_out or job.is_ended):  # a finished job keeps the summary of the run that finished it
        job.end(summary)
    print(f"{whole.recordings} recordings, {whole.failed} of them failed; {whole.seconds / 3600:.2f} hours of audio")
    if done.recordings:
        print(f"this run: {done.seconds / 3600:.2f} hours in {elapsed:.1f} s, RTFx {rtfx:.1f} (loading included)")
    if whole.left_out:
        print(f"{whole.left_out} recordings were left out, because workers died on their shards", file=sys.stderr)
    print(json.dumps(summary))
    return 1 if whole.failed or whole.left_out else 0
