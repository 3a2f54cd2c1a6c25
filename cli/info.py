"""`steno info`: describe a checkpoint."""

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from cli.errors import CommandError
from cli.model_options import MODEL_HELP, Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser("info", help="describe a checkpoint")
    parser.add_argument("model", nargs="?", default="bundled", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    from models import CheckpointError

    try:
        info = _info(args.model)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    if args.json:
        print(json.dumps(info, ensure_ascii=False))
        return 0
    rows = list(_rows(info))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    return 0


def _info(model: str) -> dict[str, Any]:
    """Return the description of a model that transcribes, or of a language identifier."""
    from models import load_identifier, load_model
    from models.errors import OtherPurposeError

    try:
        return load_model(model).info()
    except OtherPurposeError:
        return load_identifier(model).info()


def _rows(info: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the rows of the table, name and value. Unknown values are left out."""
    for key, value in info.items():
        name = prefix + key.replace("_", " ")
        if isinstance(value, Mapping):
            yield from _rows(value, prefix=f"{name}: ")
        elif isinstance(value, bool):
            yield name, "yes" if value else "no"
        elif isinstance(value, float):
            yield name, f"{value:.4g}"
        elif isinstance(value, int):
            yield name, f"{value:,}"
        elif isinstance(value, list):
            yield name, ", ".join(map(str, value))
        elif value is not None:
            yield name, str(value)
