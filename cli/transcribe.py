"""`steno transcribe`: recordings to text."""

import argparse
import dataclasses
import json
import sys

from bulk.file_transcripts import Failed, Transcribed, transcribe_files
from cli.model_options import Subparsers, add_model_options, open_model, transcription_options


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "transcribe",
        help="turn recordings into text",
        description="Turn recordings (wav, flac, mp3, ogg, webm, mp4, m4a, aac, amr) into text, one line a file.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="recording")
    parser.add_argument(
        "--format", choices=("txt", "json"), default="txt", help="json: tokens, words and their times as well"
    )
    add_model_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a line for each file; files that fail are named on stderr."""
    from tqdm import tqdm

    outcomes = transcribe_files(open_model(args), args.files, transcription_options(args))
    failures = 0
    with tqdm(zip(args.files, outcomes, strict=True), total=len(args.files), unit="file", disable=None) as progress:
        for name, outcome in progress:
            if isinstance(outcome, Failed):
                failures += 1
                tqdm.write(f"{name}: {outcome.error}", file=sys.stderr)
            else:
                tqdm.write(_line(name, outcome, args), file=sys.stdout)
    return 1 if failures else 0


def _line(name: str, outcome: Transcribed, args: argparse.Namespace) -> str:
    if args.format == "json":
        fields = {"audio": name, "duration": outcome.seconds, **dataclasses.asdict(outcome.hypothesis)}
        return json.dumps(fields, ensure_ascii=False)
    text = outcome.hypothesis.text
    return text if len(args.files) == 1 else f"{name}\t{text}"
