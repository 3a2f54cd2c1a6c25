"""The row of a recording, and a shard's file of rows."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from operator import add
from typing import TYPE_CHECKING, Any, Literal

from bulk.file_transcripts import Failed, Transcribed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bulk.entries import Entry

Detail = Literal["text", "words"]
DETAILS: tuple[Detail, ...] = ("text", "words")


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of recordings."""

    recordings: int = 0  # recordings that have a row
    failed: int = 0  # those of them whose row has an error
    seconds: float = 0.0  # seconds of audio transcribed
    left_out: int = 0  # recordings that have no row, because workers died on their shard

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(add, astuple(self), astuple(other)))


def row(entry: Entry, outcome: Transcribed | Failed, detail: Detail) -> dict[str, Any]:
    """Return the row of a recording, with the field names of `steno transcribe --format json`."""
    names = ("audio", "duration", "text", "error", "language", "language_probability", "words")
    fields: dict[str, Any] = dict.fromkeys(names if detail == "words" else names[:-1]) | {"audio": entry.audio}
    if isinstance(outcome, Failed):
        return fields | {"error": outcome.error}
    fields |= {"duration": outcome.seconds, "text": outcome.transcript.text}
    if outcome.spoken:
        fields |= {"language": outcome.spoken.language, "language_probability": outcome.spoken.probability}
    if detail == "words":
        fields["words"] = outcome.transcript.as_dict()["words"]
        for word in fields["words"]:
            del word["token_span"]
    return fields


def tally(rows: Sequence[dict[str, Any]]) -> Tally:
    """Count rows."""
    return Tally(
        recordings=len(rows),
        failed=sum(fields["error"] is not None for fields in rows),
        seconds=sum(fields["duration"] or 0.0 for fields in rows),
    )


def encoded(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return a shard's file: one JSON object a line."""
    return "".join(json.dumps(fields, ensure_ascii=False) + "\n" for fields in rows).encode()


def counted(content: bytes) -> Tally:
    """Return the tally of a shard's file; raise ValueError if it is damaged."""
    try:
        return tally([json.loads(line) for line in content.splitlines()])
    except (KeyError, TypeError) as error:
        raise ValueError("a line is not a row") from error
