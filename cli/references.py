"""Recordings with their transcripts: a JSON Lines manifest or a LibriSpeech folder."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bulk.entries import objects
from cli.errors import CommandError


@dataclass(frozen=True, slots=True)
class Reference:
    """A file of audio, its transcript, the collection that it is from, and the part of that, such as train or dev."""

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
        CommandError: if it cannot be read.
        JobError: if a line is wrong; it is named.
    """
    try:
        return list(_librispeech(path) if path.is_dir() else objects(str(path), partial(_reference, path)))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not a text file") from error


def _reference(manifest: Path, fields: dict[str, Any]) -> Reference:
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
