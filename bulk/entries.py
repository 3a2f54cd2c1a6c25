"""The recordings of a job: of a manifest, a folder, or a prefix of an object store."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from bulk.errors import JobError
from bulk.storage import absolute, file_system, is_url, reading, store_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_LINE = 1 << 20
# Where a recording's length is not given, it is estimated from the file's size, well enough to sort by.
_BYTES_A_SECOND = (
    dict.fromkeys((".mov", ".avi", ".mkv", ".ts"), 100_000)
    | dict.fromkeys((".wav", ".aiff", ".aif", ".caf"), 32_000)
    | dict.fromkeys((".flac", ".au"), 16_000)
    | dict.fromkeys((".mp3", ".mp4", ".m4a", ".aac", ".wma"), 12_000)
    | dict.fromkeys((".webm", ".ogg", ".oga"), 6_000)
    | {".ac3": 24_000, ".opus": 4_000, ".3gp": 3_000, ".amr": 1_600}
)
_SECONDS_WHERE_NOTHING_IS_KNOWN = 10.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A recording to transcribe: what the manifest calls it, or its path below the folder; its path or URL.

    Its length is that of the manifest, else an estimate.
    """

    audio: str
    location: str
    seconds: float


def entries(source: str) -> list[Entry]:
    """Return the recordings of a manifest, a folder or a prefix, by path or URL, each once, in no particular order.

    A manifest has one JSON object a line: ``audio`` (or NeMo's ``audio_filepath``), relative to the manifest, and
    ``duration`` in seconds if it is known. In a folder, every file with a recording's suffix counts, unless hidden.

    Raises:
        JobError: if it cannot be read (the message names a bad line), or holds no recording.
    """
    try:
        found = _of_folder(source) if _is_folder(source) else _of_manifest(source)
        once = {entry.location: entry for entry in found}
    except OSError as error:
        raise JobError(f"{source}: {error.strerror or error}") from error
    if not once:
        raise JobError(f"{source}: no recordings")
    return list(once.values())


def _is_folder(source: str) -> bool:
    if not is_url(source):
        return Path(source).is_dir()
    with store_errors(source):
        system, path = file_system(source)
        return bool(system.isdir(path))


def _of_folder(source: str) -> Iterator[Entry]:
    if is_url(source):
        with store_errors(source):
            system, root = file_system(source)
            found = system.find(root, detail=True)
        for path, info in found.items():
            name = path[len(root) :].lstrip("/")
            if info["type"] == "file" and _is_recording(name):
                yield Entry(written(name), system.unstrip_protocol(path), _seconds(name, info.get("size")))
        return
    folder = Path(absolute(source))
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if _is_recording(name) and path.is_file():
            yield Entry(written(name), str(path), _seconds(name, path.stat().st_size))


def written(name: str) -> str:
    """Return a name that can be written as UTF-8; file names may hold other bytes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _is_recording(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in _BYTES_A_SECOND and not any(part.startswith(".") for part in path.parts)


def _of_manifest(source: str) -> Iterator[Entry]:
    with reading(source) as lines:
        for number, line in enumerate(iter(partial(lines.readline, _LONGEST_LINE), b""), 1):
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
                if not isinstance(fields, dict):
                    raise ValueError("not a JSON object")  # noqa: TRY004, TRY301  # bad data, whatever the type
                yield _entry(source, fields)
            except UnicodeDecodeError as error:
                raise JobError(f"{source}: not a text file") from error
            except json.JSONDecodeError as error:
                reason = f"not a JSON object: {error.msg} at column {error.colno}"
                raise JobError(f"{source}, line {number}: {reason}") from error
            except (ValueError, OverflowError, RecursionError) as error:
                raise JobError(f"{source}, line {number}: {error}") from error


def _entry(manifest: str, fields: dict[str, Any]) -> Entry:
    audio = fields.get("audio", fields.get("audio_filepath"))
    if not isinstance(audio, str) or not audio or "\0" in audio:
        raise ValueError("'audio' must be the path or the URL of a recording")
    if fields.get("offset"):
        raise ValueError("'offset' is not supported: a recording is transcribed as a whole")
    seconds = fields.get("duration")
    if seconds is not None and not _is_length(seconds):
        raise ValueError("'duration' must be a number of seconds above 0")
    os.fsencode(audio)  # raises if no file can have this name
    location = audio if is_url(audio) else _beside(manifest, audio)
    return Entry(written(audio), location, _size_in_seconds(location) if seconds is None else float(seconds))


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _beside(manifest: str, audio: str) -> str:
    if audio.startswith("/") and not is_url(manifest):
        return audio
    folder, _, _ = absolute(manifest).rpartition("/")
    return f"{folder}/{audio}"


def _size_in_seconds(location: str) -> float:
    """Estimate a length from a local file's size; to ask a store takes as long as to transcribe a short recording."""
    if is_url(location):
        return _SECONDS_WHERE_NOTHING_IS_KNOWN
    try:
        return _seconds(location, Path(location).stat().st_size)
    except OSError:
        return _SECONDS_WHERE_NOTHING_IS_KNOWN


def _seconds(name: str, size: int | None) -> float:
    if not size:
        return _SECONDS_WHERE_NOTHING_IS_KNOWN
    return size / _BYTES_A_SECOND.get(PurePosixPath(name).suffix.lower(), 16_000)
