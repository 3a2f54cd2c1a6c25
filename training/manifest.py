"""Reads the clips of a manifest: JSON lines, also NeMo's; a folder of LibriSpeech or of Hugging Face's `datasets`."""

import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from audio.decode import decode
from audio.errors import AudioError
from audio.limits import AudioLimits
from models import Prompt
from training.clip import ByteRange, Clip
from training.errors import ManifestError
from training.hugging_face import files_of_rows, is_hugging_face, rows_of
from training.librispeech import files_of_transcripts, seconds_of, transcripts
from training.tar_shards import members_of, tar_of_nemo

_LONGEST_LINE = 2**20
_UNKNOWN_SECONDS = 1.0
# Any rate tells the length.
_RATE = 8_000
_WILDCARDS = frozenset("*?[")
# Keys of NeMo's manifests, and our names.
_OF_NEMO = {
    "audio_filepath": "audio",
    "source_lang": "language",
    "lang": "language",
    "target_lang": "target_language",
    "pnc": "punctuation",
}
# For messages: JSON's names of what a line may have instead of an object.
_KINDS = {list: "list", str: "string", int: "number", float: "number"}
# Values of true and false in NeMo's manifests.
_FLAGS = {"yes": True, "pnc": True, "true": True, "1": True, "no": False, "nopnc": False, "false": False, "0": False}


def read_manifest(path: Path, split: str | None = None) -> list[Clip]:
    """Return the clips of a manifest, in its order. See ``clips_of``."""
    return list(clips_of(path, split))


def clips_of(path: Path, split: str | None = None) -> Iterator[Clip]:
    """Yield the clips of a manifest, in its order, as its lines are read.

    Args:
        path: a file with one JSON object a line, which may be compressed by gzip, or a folder. A line has ``audio``
            (relative to the manifest) and ``duration`` in seconds. It may have ``text``, ``source``, ``speaker``,
            ``split``, ``offset`` (the second of the recording at which the clip begins) and, for attention decoders,
            ``language``, ``target_language`` and ``punctuation`` (true or false). NeMo's names of these keys are
            accepted too, and ``shard_id`` for its tars beside the manifest. A folder is LibriSpeech's (each set, such
            as dev-clean, is a split and a source) or one of Hugging Face's `datasets`. A clip whose duration is
            missing or no number of seconds above 0 has 0 ``seconds``.
        split: only clips of this split; None takes all.

    Raises:
        ManifestError: if it cannot be read, or has no clip of the split. The message names the line at fault.
    """
    found = False
    try:
        for clip in _folder(path, split) if path.is_dir() else _clips(path, split):
            found = True
            yield clip
    except (OSError, EOFError, zlib.error) as error:
        raise ManifestError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: not a text file") from error
    finally:
        members_of.cache_clear()
    if not found:
        of_split = f" of split {split!r}" if split is not None else ""
        is_unknown = path.is_dir() and split is None
        missing = ": no *.trans.txt, metadata.jsonl or *.arrow" if is_unknown else ""
        raise ManifestError(f"{path} has no clips{of_split}{missing}")


def manifests_of(path: Path) -> list[Path]:
    """Return the manifests of a path in a recipe: the path, or if it is a pattern (``a_*.json``) the files that match.

    Raises:
        ManifestError: if no file matches the pattern.
    """
    if path.exists() or not _WILDCARDS.intersection(path.name):
        return [path]
    found = sorted(path.parent.glob(path.name))
    if not found:
        raise ManifestError(f"{path}: no file matches")
    return found


def files_of(path: Path) -> list[Path]:
    """Return the files that hold the lines of a manifest, without tars and recordings.

    Raises:
        OSError: if a folder cannot be read.
    """
    if not path.is_dir():
        return [path]
    return files_of_rows(path) if _is_hugging_face(path) else list(files_of_transcripts(path))


def _folder(folder: Path, split: str | None) -> Iterator[Clip]:
    return _hugging_face(folder, split) if _is_hugging_face(folder) else _librispeech(folder, split)


def _is_hugging_face(folder: Path) -> bool:
    return next(files_of_transcripts(folder), None) is None and is_hugging_face(folder)


def _clips(path: Path, split: str | None) -> Iterator[Clip]:
    with _opened(path) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                fields = _fields(line)
                if split in (None, fields.get("split")):
                    yield _clip(path, fields, where)
            except (ValueError, RecursionError) as error:
                raise ManifestError(f"{where}: {error}") from error


def _librispeech(folder: Path, split: str | None) -> Iterator[Clip]:
    for audio, text, name, speaker in transcripts(folder):
        if split in (None, name):
            clip = Clip(audio, audio.name, _UNKNOWN_SECONDS, text, name, speaker)
            yield replace(clip, seconds=_seconds(clip))


def _hugging_face(folder: Path, split: str | None) -> Iterator[Clip]:
    for where, row, byte_range in rows_of(folder):
        if split not in (None, row["split"]):
            continue
        known = row.get("duration") is not None
        try:
            fields = _checked({**row, "duration": row.get("duration") if known else _UNKNOWN_SECONDS})
        except ValueError as error:
            raise ManifestError(f"{where}: {error}") from error
        audio = Path(row["audio"])
        name = row.get("name") or audio.name
        clip = _new_clip(fields, audio, name, folder.resolve().name, where, byte_range)
        yield clip if known else replace(clip, seconds=_seconds(clip))


def _opened(path: Path) -> TextIO:
    encoding = "utf-8-sig"  # editors on Windows begin a file with a byte order mark
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=encoding)
    return path.open(encoding=encoding)


def _seconds(clip: Clip) -> float:
    """Return the length of a recording in seconds, by its header or, where libsndfile has none, by decoding it."""
    try:
        with clip.open() as file:
            return seconds_of(file) or len(decode(file, rate=_RATE, limits=AudioLimits()).samples) / _RATE
    except (AudioError, OSError):
        return _UNKNOWN_SECONDS  # any: loading says why it cannot be read, and skips it


def _fields(line: str) -> dict[str, Any]:
    """Parse a line, and check its types."""
    if len(line) >= _LONGEST_LINE:
        raise ValueError(f"a line of {_LONGEST_LINE:,} characters or more")
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a JSON object: {error.msg} at column {error.colno}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object, but a {_KINDS.get(type(fields), 'value')}")  # noqa: TRY004  # bad data
    return _checked(fields)


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields under our names, after a check of their types."""
    fields = {_OF_NEMO.get(name, name): value for name, value in fields.items()}
    if fields.get("audio") is None:
        raise ValueError("'audio' is missing")
    for name in ("audio", "text", "source", "speaker", "split", "language", "target_language"):
        value = fields.get(name)
        if not isinstance(value, str) and value is not None:
            raise ValueError(f"{name!r} must be a string")
    if not fields["audio"] or "\0" in fields["audio"]:
        raise ValueError(f"'audio' is {fields['audio']!r}, which names no file")
    os.fsencode(fields["audio"])  # raises ValueError for half a surrogate pair, as the next line does
    (fields.get("text") or "").encode()
    punctuation = fields.get("punctuation")
    flag = str(True if punctuation is None else punctuation).lower()
    if flag not in _FLAGS:
        raise ValueError("'punctuation' must be true or false")
    fields["punctuation"] = _FLAGS[flag]
    if fields.get("offset") is not None and not _is_length(fields["offset"]):
        raise ValueError("'offset' must be a number of seconds of 0 or more")
    if not _is_length(fields.get("duration")):
        fields["duration"] = 0.0  # such a clip is skipped and counted, as one that cannot be read
    return fields


def _is_length(value: object) -> bool:
    """Return whether a value is a finite number of 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def _clip(manifest: Path, fields: Mapping[str, Any], where: str) -> Clip:
    name, shard = str(fields["audio"]), fields.get("shard_id")
    if shard is None:
        collection = manifest.name.removesuffix(".gz").rsplit(".", 1)[0]
        return _new_clip(fields, manifest.parent / name, name, collection, where, None)
    if not isinstance(shard, int | str):
        raise ValueError("'shard_id' must be a number")  # noqa: TRY004  # bad data
    tar = tar_of_nemo(manifest, shard)
    byte_range = members_of(tar).get(name)
    if byte_range is None:
        raise ValueError(f"{tar} has no recording {name}")
    return _new_clip(fields, tar, name, tar.resolve().parent.name, where, byte_range)


def _new_clip(
    fields: Mapping[str, Any], audio: Path, name: str, collection: str, where: str, byte_range: ByteRange | None
) -> Clip:
    source = str(fields.get("source") or collection)
    text, offset = fields.get("text"), fields.get("offset")
    return Clip(
        audio=audio,
        name=name,
        seconds=float(fields["duration"]),
        text=None if text is None else str(text),
        source=source,
        speaker=str(fields.get("speaker") or source),
        prompt=Prompt(_code(fields, "language"), _code(fields, "target_language"), bool(fields["punctuation"])),
        start=None if offset is None else float(offset),
        byte_range=byte_range,
        where=where,
    )


def _code(fields: Mapping[str, object], name: str) -> str | None:
    """Return a language's code in lower case, without a region: en for en-US."""
    value = fields.get(name)
    return None if value is None else str(value).split("-")[0].lower()
