"""`steno key`: a new API key."""

import argparse
import secrets

from cli.errors import CommandError
from cli.model_options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "key",
        help="make an API key",
        description="Make an API key: the first line goes to its user, the second into STENO_API_KEYS (entries by "
        "commas). The service never sees the key itself before a client sends it.",
    )
    parser.add_argument("name", help="whose it is; stands in logs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a key and its entry."""
    from service.http.access import digest

    if not args.name.replace("-", "").replace("_", "").isalnum():
        raise CommandError(f"{args.name!r} is no name for a key; use letters, digits, - and _")
    key = f"sk-steno-{secrets.token_urlsafe(32)}"
    print(key)
    print(f"{args.name}:{digest(key)}")
    return 0
