"""`steno serve`: the HTTP service."""

import argparse
import sys
from collections.abc import Sequence


class _Secret(argparse.Action):
    """A flag that is refused, because other users of the machine see it in the list of processes."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error("a secret is not for the command line; set STENO_WEBHOOK_SECRET, or mount it as a file")


def run(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit status: 0, or 2 if it cannot serve."""
    # Imported here, because the settings import pydantic, which is slow.
    from service import logs, server
    from service.engine.supervisor import EngineStartError
    from service.settings import Settings, SettingsError
    from service.tracing import TracingError
    from service.workers.supervisor import WorkerStartError

    parser = argparse.ArgumentParser(
        prog="steno serve",
        description="Serve a model over HTTP. Every flag is also a STENO_ environment variable; "
        "STENO_WEBHOOK_SECRET has no flag.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,  # --models would be --models-on-demand
    )
    parser.add_argument("--webhook-secret", nargs="?", action=_Secret, help=argparse.SUPPRESS)
    for name, field in Settings.model_fields.items():
        if name == "webhook_secret":
            continue
        help_text = f"{field.description} (default: {_plain(field.default)})".replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", help=help_text, metavar="VALUE")
    try:
        settings = Settings.read(vars(parser.parse_args(arguments)))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    logs.configure(logs.resolve_format(settings.log_format), settings.log_level)
    try:
        server.run(settings)
    except (SettingsError, EngineStartError, WorkerStartError, TracingError, OSError) as error:
        print(f"steno serve: {error}", file=sys.stderr)
        return 2
    return 0


def _plain(value: object) -> str:
    if isinstance(value, tuple) and value:
        return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)
    return "unset" if value in (None, ()) else str(value)
