"""Structured logs on standard error: ids, sizes, times and errors; never transcripts, prompts or file names."""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.orjson import OrjsonFormatter

from service.tracing import trace_fields

LogFormat = Literal["json", "text"]


class _JsonLines(OrjsonFormatter):
    """One JSON object for each line, with the time in UTC."""

    def __init__(self) -> None:
        super().__init__(
            "{levelname}{name}{message}{exc_info}",
            style="{",
            rename_fields={"levelname": "level", "name": "logger", "message": "event", "exc_info": "error"},
        )

    def add_fields(
        self, log_data: dict[str, object], record: logging.LogRecord, message_dict: dict[str, object]
    ) -> None:
        log_data["time"] = _moment(record)
        super().add_fields(log_data, record, message_dict)
        if log_data.get("error") is None:
            log_data.pop("error", None)


class _TextLines(logging.Formatter):
    """Lines for people: time, level, event, then the fields as key=value; what belongs to a line before is indented.

    What a client sends is in some fields; a line break there would begin a line that the service never wrote.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in vars(record).items() if key not in RESERVED_ATTRS}
        described = "".join(f" {key}={value}" for key, value in fields.items())
        line = f"{_moment(record)[11:19]} {record.levelname.lower():7} {_on_one_line(record.getMessage() + described)}"
        if record.exc_info:
            parts = map(_on_one_line, self.formatException(record.exc_info).splitlines())
            line = "\n    ".join((line, *parts))
        return line


def _add_trace(record: logging.LogRecord) -> bool:
    """Add the ids of the current trace to a line."""
    vars(record).update(trace_fields())
    return True


def _on_one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def resolve_format(wanted: Literal["auto", "json", "text"]) -> LogFormat:
    """Resolve "auto": text on a terminal, otherwise JSON."""
    if wanted == "auto":
        return "text" if sys.stderr.isatty() else "json"
    return wanted


def configure(log_format: LogFormat, level: str) -> None:
    """Send every logger of this process to standard error in one format."""
    handler = logging.StreamHandler()
    handler.addFilter(_add_trace)
    handler.setFormatter(_JsonLines() if log_format == "json" else _TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # uvicorn's lines repeat ours: one for each request, one at start and stop.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        # Its warnings are of requests that are not HTTP; the guard counts those.
        logging.getLogger(name).setLevel(logging.ERROR)
    # The hub's client logs each request of a download, with signed addresses.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
