"""The `steno` command."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from bulk.errors import JobError
from cli import batch, doctor, info, key, training, transcribe
from cli import eval as evaluation
from cli.errors import CommandError
from models.device.resources import limit_threads
from training.errors import TrainingError

_EXIT_CODES = """\
exit status:
  0    fine
  1    some inputs failed; the others were done
  2    wrong usage, or a file that cannot be read or written
  130  interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv``, by default that of the process, and return the exit status.

    Raises:
        SystemExit: after help or the version, with 0, and for wrong usage, with 2.
    """
    limit_threads()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe. The interpreter's flush at exit must not fail on it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CommandError, JobError, TrainingError) as error:
        print(f"steno: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        print(f"steno: {named}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["serve"]:
        # Its flags are the settings of the service, which are slow to import, so it parses them itself.
        from cli import serve

        return serve.run(arguments[1:])
    parsed = _parser().parse_args(arguments)
    status: int = parsed.run(parsed)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="steno",
        description="Recorded speech to text.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"steno {version('steno')}")
    subparsers = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for command in (transcribe, batch, evaluation, info, doctor, key, training):
        command.add_parser(subparsers)
    subparsers.add_parser("serve", help="serve a model over HTTP", add_help=False)
    return parser
