"""Folders of Hugging Face's `datasets`: files with their texts beside them (AudioFolder), or what save_to_disk wrote.

Audio inside an Arrow file is not copied out of it; it is read in place.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from training.clip import ByteRange
from training.errors import ManifestError

_TEXTS = ("text", "transcription", "sentence", "transcript", "normalized_text")
_OTHERS = ("duration", "speaker", "speaker_id", "language", "target_language", "source_lang", "target_lang", "pnc")
_METADATA = ("metadata.jsonl", "metadata.csv")


def is_hugging_face(folder: Path) -> bool:
    """Return whether a folder is one of `datasets`."""
    return any(next(folder.rglob(name), None) for name in (*_METADATA, "*.arrow", "*.parquet"))


def files_of_rows(folder: Path) -> list[Path]:
    """Return the files with the rows of a folder: what `save_to_disk` wrote, or else what lists its files."""
    folder = folder.resolve()
    # `datasets` puts results of `map` and `filter` beside the data, as cache-*.arrow.
    tables = [path for path in folder.rglob("*.arrow") if not path.name.startswith("cache-")]
    return sorted(tables) or sorted(path for name in _METADATA for path in folder.rglob(name))


def rows_of(folder: Path) -> Iterator[tuple[str, dict[str, Any], ByteRange | None]]:
    """Yield the rows of a folder, in order.

    Each has its place, for messages; its fields, named as in our manifests (``audio`` is an absolute path); and the
    part of the file that is its audio, if the file has several recordings.

    Raises:
        ManifestError: if it cannot be read; the message names file and line.
    """
    folder = folder.resolve()
    files = files_of_rows(folder)
    if not files:
        raise ManifestError(
            f"{folder} has sound in Parquet files, which are not read: "
            "datasets.load_dataset(FOLDER).save_to_disk(OTHER) writes Arrow files, which are"
        )
    for path in files:
        rows = _of_arrow if path.suffix == ".arrow" else _of_metadata
        yield from rows(path, _split(folder, path))


def _split(folder: Path, path: Path) -> str | None:
    """Return a file's split: the name of the top folder that it lies in; None for a file at the top."""
    inside = path.relative_to(folder).parts
    return inside[0] if len(inside) > 1 else None


def _of_metadata(path: Path, split: str | None) -> Iterator[tuple[str, dict[str, Any], None]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines: Iterator[tuple[int, Any]] = _csv_rows(path, file) if path.suffix == ".csv" else enumerate(file, start=1)
        for number, line in lines:
            where = f"{path}, line {number}"
            if isinstance(line, str) and not line.strip():
                continue
            try:
                row = json.loads(line) if isinstance(line, str) else line
                fields = _fields(row, split) | {"audio": str(path.parent / row["file_name"])}
                if path.suffix == ".csv" and "duration" in fields:
                    fields["duration"] = float(fields["duration"])
            except (KeyError, TypeError, AttributeError) as error:
                raise ManifestError(f"{where}: 'file_name' is missing") from error
            except (ValueError, RecursionError) as error:
                raise ManifestError(f"{where}: {error}") from error
            yield where, fields, None


def _csv_rows(path: Path, file: TextIO) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a table, each with the number of its last line."""
    rows = csv.DictReader(file)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise ManifestError(f"{path}, line {rows.line_num}: {error}") from error


def _of_arrow(path: Path, split: str | None) -> Iterator[tuple[str, dict[str, Any], ByteRange | None]]:
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise ManifestError(f"{path} needs pyarrow; it comes with: pip install 'steno[arrow]'") from error
    number = 0
    try:
        with pa.memory_map(str(path)) as mapped:
            first = mapped.read_buffer().address
            mapped.seek(0)
            with pa.ipc.open_stream(mapped) as stream:
                for batch in stream:
                    if "audio" not in batch.schema.names:
                        raise ManifestError(f"{path} has no column 'audio', but {', '.join(batch.schema.names)}")
                    rows = batch.select([name for name in batch.schema.names if name in {*_TEXTS, *_OTHERS}])
                    audio = batch.column("audio")
                    content, names = audio.field("bytes"), audio.field("path").to_pylist()
                    ends = _ends(content)
                    begin = content.buffers()[2].address - first
                    for index, row in enumerate(rows.to_pylist()):
                        number += 1
                        where, fields = f"{path}, row {number}", _fields(row, split)
                        if not content[index].is_valid:
                            yield where, fields | {"audio": str(path.parent / names[index])}, None
                            continue
                        byte_range = ByteRange(begin + ends[index], ends[index + 1] - ends[index])
                        if not 0 <= byte_range.offset <= mapped.size() - byte_range.size:
                            raise ManifestError(f"{path} is compressed, which is not read")
                        named = {"audio": str(path), "name": f"{path.name}:{number}"}
                        yield where, fields | named, byte_range
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise ManifestError(f"{path} is damaged, or has no sound as `datasets` writes it: {error}") from error


def _ends(content: Any) -> list[int]:  # noqa: ANN401  # pyarrow has no types
    """Return the offset of the first value in the data of a binary array, and of the end of each value."""
    kind = np.int64 if "large" in str(content.type) else np.int32
    ends: list[int] = np.frombuffer(content.buffers()[1], kind)[content.offset :][: len(content) + 1].tolist()
    return ends


def _fields(row: Mapping[str, Any], split: str | None) -> dict[str, Any]:
    text = next((row[name] for name in _TEXTS if row.get(name) is not None), None)
    fields = {name: row[name] for name in _OTHERS if row.get(name) not in (None, "")}  # "": an empty cell of a CSV
    if "speaker_id" in fields:
        fields["speaker"] = str(fields.pop("speaker_id"))
    return fields | {"text": text, "split": split}
