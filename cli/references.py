"""Recordings with their transcripts: a JSON Lines manifest or a LibriSpeech folder."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CommandError


@dataclass(frozen=True, slots=True)
class Reference:
    """A recording and its transcript.

    Attributes:
        audio: the file.
        text: its transcript.
        source: the collection that it is from.
        split: the part of the collection, such as train or dev, or None.
    """

    audio: Path
    text: str
    source: str
    split: str | None = None


def read_references(path: Path) -> list[Reference]:
    """Return the references of a manifest, in its order.

    Args:
        path: a file with one JSON object a line (``audio``, relative to the manifest, and ``text``; ``source`` and
            ``split`` if there are several; NeMo's ``audio_filepath`` stands for ``audio``), or a LibriSpeech folder
            (``*.trans.txt`` beside ``*.flac``).

    Raises:
        CommandError: if it cannot be read, naming the line.
    """
    try:
        return list(_librispeech(path) if path.is_dir() else _json_lines(path))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not a text file") from error


def _json_lines(path: Path) -> Iterator[Reference]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield _reference(path, json.loads(line))
            except json.JSONDecodeError as error:
                reason = f"not a JSON object: {error.msg} at column {error.colno}"
                raise CommandError(f"{path}, line {number}: {reason}") from error
            except (ValueError, RecursionError) as error:
                raise CommandError(f"{path}, line {number}: {error}") from error


def _reference(manifest: Path, fields: object) -> Reference:
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  # bad data, whatever the type
    fields = {"audio": fields.get("audio_filepath"), **fields}
    for name in ("audio", "text", "source", "split"):
        value = fields.get(name)
        if value is None and name in {"audio", "text"}:
            raise ValueError(f"{name!r} is missing")
        if not isinstance(value, str) and value is not None:
            raise ValueError(f"{name!r} must be a string")
    if b"\0" in os.fsencode(fields["audio"]):  # an error too if no file can have the name
        raise ValueError("'audio' must be the path of a recording")
    return Reference(
        audio=manifest.parent / fields["audio"],
        text=fields["text"],
        source=fields.get("source") or manifest.stem,
        split=fields.get("split"),
    )


def _librispeech(folder: Path) -> Iterator[Reference]:
    for transcripts in sorted(folder.rglob("*.trans.txt")):
        for line in transcripts.read_text(encoding="utf-8").splitlines():
            name, _, text = line.partition(" ")
            if name:
                # SET/SPEAKER/CHAPTER/, such as dev-clean: each set has a line of its own.
                source = transcripts.resolve().parents[2].name
                yield Reference(transcripts.with_name(f"{name}.flac"), text, source=source)
