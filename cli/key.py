"""`steno key`: a new API key."""

import argparse
import re
import secrets
import sys

from cli.errors import CommandError
from cli.model_options import Subparsers

# Digests have no salt, which is safe only for keys that cannot be guessed.
_SHORTEST = 20
# Clients cannot send other characters in a header.
_KEY = re.compile(rf"[!-~]{{{_SHORTEST},}}")
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
    parser.add_argument(
        "--stdin", action="store_true", help="print the entry of a key that exists, read from standard input"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a key and its entry."""
    from service.keys import digest

    if not _NAME.fullmatch(args.name):
        raise CommandError(f"{args.name!r} is no name for a key; use a to z, A to Z, digits, - and _")
    if args.stdin:
        key = sys.stdin.readline().strip()
        if not _KEY.fullmatch(key):
            raise CommandError(
                f"a key has ASCII characters without spaces, at least {_SHORTEST}: short ones can be guessed"
            )
    else:
        key = f"sk-steno-{secrets.token_urlsafe(32)}"
        print(key)
    print(f"{args.name}:{digest(key)}")
    return 0
