"""The row of a recording, and how rows are written: JSON Lines or Parquet."""

from __future__ import annotations

import io
import json
from dataclasses import astuple, dataclass
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bulk.errors import JobError
from bulk.file_transcripts import Failed, Transcribed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from bulk.entries import Entry

Detail = Literal["text", "words", "tokens"]
DETAILS: tuple[Detail, ...] = ("text", "words", "tokens")

# Null unless the language was identified.
_OF_LANGUAGE = ("language", "language_probability")
_OF_TOKENS = ("tokens", "frames", "durations", "token_confidence")


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of recordings.

    Attributes:
        recordings: recordings that have a row.
        failed: those of them whose row has an error.
        seconds: seconds of audio transcribed.
        left_out: recordings that have no row, because workers died on their shard.
    """

    recordings: int = 0
    failed: int = 0
    seconds: float = 0.0
    left_out: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(add, astuple(self), astuple(other)))


def row(entry: Entry, outcome: Transcribed | Failed, detail: Detail) -> dict[str, Any]:
    """Return the row of a recording, with the field names of `steno transcribe --format json`."""
    if isinstance(outcome, Failed):
        fields: dict[str, Any] = {"audio": entry.audio, "duration": None, "text": None, "error": outcome.error}
        fields |= dict.fromkeys(_OF_LANGUAGE)
    else:
        fields = {"audio": entry.audio, "duration": outcome.seconds, "text": outcome.transcript.text, "error": None}
        fields |= dict(zip(_OF_LANGUAGE, outcome.spoken or (None, None), strict=True))
    if detail == "text":
        return fields
    transcript = None if isinstance(outcome, Failed) else outcome.transcript.as_dict()
    fields["words"] = None if transcript is None else transcript["words"]
    if detail == "tokens":
        return fields | {name: None if transcript is None else transcript[name] for name in _OF_TOKENS}
    for word in fields["words"] or ():
        del word["token_span"]
    return fields


def tally(rows: Sequence[dict[str, Any]]) -> Tally:
    """Count rows."""
    return Tally(
        recordings=len(rows),
        failed=sum(fields["error"] is not None for fields in rows),
        seconds=sum(fields["duration"] or 0.0 for fields in rows),
    )


class JsonLines:
    """One JSON object a line."""

    suffix: ClassVar[str] = "jsonl"

    def encoded(self, rows: Sequence[dict[str, Any]], _detail: Detail) -> bytes:
        """Return a file with these rows, which hold only the fields of the detail already."""
        return "".join(json.dumps(fields, ensure_ascii=False) + "\n" for fields in rows).encode()

    def counted(self, content: bytes) -> Tally:
        """Return the tally of a file's rows; raise ValueError if it is damaged."""
        try:
            return tally([json.loads(line) for line in content.splitlines()])
        except (KeyError, TypeError) as error:
            raise ValueError("a line is not a row") from error


class Parquet:
    """Compressed columns. Their types are the same in every shard.

    Raises:
        JobError: if pyarrow is not installed.
    """

    suffix: ClassVar[str] = "parquet"

    def __init__(self) -> None:
        try:
            import pyarrow.parquet  # noqa: F401  # checked before anything is transcribed
        except ModuleNotFoundError as error:
            raise JobError(f"{error.name} is not installed; it comes with: pip install 'steno[parquet]'") from error

    def encoded(self, rows: Sequence[dict[str, Any]], detail: Detail) -> bytes:
        """Return a file with these rows."""
        import pyarrow as pa
        from pyarrow import parquet

        file = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(list(rows), schema=_schema(detail)), file, compression="zstd")
        return file.getvalue()

    def counted(self, content: bytes) -> Tally:
        """Return the tally of a file's rows; raise ValueError if one of the two columns that it counts is damaged."""
        from pyarrow import parquet

        try:
            return tally(parquet.read_table(io.BytesIO(content), columns=["duration", "error"]).to_pylist())
        except OSError as error:  # pyarrow's other error of damaged files, ArrowInvalid, is a ValueError
            raise ValueError(str(error)) from error


def _schema(detail: Detail) -> pa.Schema:
    import pyarrow as pa

    fields = [("audio", pa.string()), ("duration", pa.float64()), ("text", pa.string()), ("error", pa.string())]
    fields += [("language", pa.string()), ("language_probability", pa.float64())]
    word = [("text", pa.string()), ("start", pa.float64()), ("end", pa.float64()), ("confidence", pa.float64())]
    if detail == "tokens":
        word.append(("token_span", pa.list_(pa.int64())))
    if detail != "text":
        fields.append(("words", pa.list_(pa.struct(word))))
    if detail == "tokens":
        fields += [(name, pa.list_(pa.int64())) for name in ("tokens", "frames", "durations")]
        fields.append(("token_confidence", pa.list_(pa.float64())))
    return pa.schema(fields)


RowFormat = JsonLines | Parquet
FORMATS: dict[str, type[RowFormat]] = {"jsonl": JsonLines, "parquet": Parquet}
