"""`steno train collect`: make training clips out of public repositories."""

import argparse
from pathlib import Path

from cli.model_options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "collect",
        help="make training clips from public repositories",
        description="Make clips and a manifest from recordings in public repositories; docs/bundled-model.md lists "
        "them with their licences.",
    )
    parser.add_argument("checkouts", metavar="DIR", help="folder of check-outs; missing ones are left out")
    parser.add_argument(
        "--beside",
        required=True,
        metavar="CORPUS",
        help="folder of a corpus; its clips are left out, as are speakers and sentences of all its splits but train",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where manifest.jsonl and the clips go")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the clips."""
    from training.bundled.corpora import collect

    seconds = collect(Path(args.checkouts), Path(args.beside), Path(args.out))
    print(", ".join(f"{source} {of / 3600:.2f} h" for source, of in seconds.items()))
    return 0
