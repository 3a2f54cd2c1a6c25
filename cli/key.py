"""`steno key`: a new API key."""

import argparse
import re
import secrets

from cli.errors import CommandError
from cli.model_options import Subparsers

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "key",
        help="make an API key",
        description="Make an API key: the first line goes to its user, the second into STENO_API_KEYS (entries by "
        "commas) or the file of STENO_API_KEYS_FILE (one a line). The service never sees the key itself before a "
        "client sends it.",
    )
    parser.add_argument("name", help="name of the key's owner, for logs and metrics")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a key and its entry."""
    from service.keys import digest

    if not _NAME.fullmatch(args.name):
        raise CommandError(f"{args.name!r} is no name for a key; use a to z, A to Z, digits, - and _")
    key = f"sk-steno-{secrets.token_urlsafe(32)}"
    print(key)
    print(f"{args.name}:{digest(key)}")
    return 0
