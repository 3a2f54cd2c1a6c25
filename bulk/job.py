"""A job in its output folder: its plan, the shards that are done, and how it continues after it was killed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bulk.entries import Entry
from bulk.errors import JobError
from bulk.plan import Shard, shards
from bulk.rows import Detail, Tally, counted, encoded, row, tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bulk.file_transcripts import Failed, Transcribed
    from bulk.storage import Folder

# Programs that read a folder of JSON Lines skip names that begin with an underscore.
_SETTINGS, _RECORDINGS, _SUMMARY = "_job/settings.json", "_job/recordings.jsonl", "_job/summary.json"
_READERS = 8  # threads


@dataclass(frozen=True, slots=True)
class ShardWriter:
    """Writes a shard's rows to its file."""

    folder: Folder
    detail: Detail

    def name(self, shard: Shard) -> str:
        """Return the name of a shard's file."""
        return f"shard-{shard.number:06d}.jsonl"

    def write(self, shard: Shard, outcomes: Sequence[Transcribed | Failed]) -> Tally:
        """Write the outcome of each recording; raise JobError if that cannot be."""
        rows = [row(entry, outcome, self.detail) for entry, outcome in zip(shard.entries, outcomes, strict=True)]
        with _errors_of(self.folder):
            self.folder.write(self.name(shard), encoded(rows))
        return tally(rows)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as this run finds it."""

    writer: ShardWriter
    left: list[Shard]  # shards that are not written yet, in the order of work
    earlier: Tally  # the tally of the shards that are written
    is_ended: bool = False  # whether nothing is left, and the summary is written too

    @property
    def recordings_left(self) -> int:
        """Number of recordings in the shards that are left."""
        return sum(len(shard.entries) for shard in self.left)

    def end(self, summary: Mapping[str, Any]) -> None:
        """Write the summary of a finished job into its folder; raise JobError if that cannot be."""
        with _errors_of(self.writer.folder):
            self.writer.folder.write(_SUMMARY, _pretty(summary))
            self.writer.folder.tidy()


@contextmanager
def _errors_of(folder: Folder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JobError(f"{folder.location}: {error.strerror or error}") from error


def open_job(
    folder: Folder, settings: Mapping[str, Any], list_entries: Callable[[], Iterable[Entry]], shard_seconds: float
) -> Job:
    """Begin a job in an empty folder, or continue the one that the folder holds.

    A job that continues keeps its recordings and shards. The settings are everything that the rows depend on, with the
    ``detail`` of these. A new job lists its recordings, and makes shards of ``shard_seconds`` of audio.

    Raises:
        JobError: if the folder holds a job with other settings, or a damaged one, or cannot be read or written.
    """
    writer = ShardWriter(folder, settings["detail"])
    with _errors_of(folder):
        if _is_begun(folder, settings):
            planned = _planned(folder)
        else:
            planned = shards(list_entries(), shard_seconds)
            # The settings are written last: a folder that has them holds a job.
            folder.write(_RECORDINGS, _listed(planned))
            folder.write(_SETTINGS, _pretty(settings))
        names, has_summary = folder.names(), _has_summary(folder)
        written = [shard for shard in planned if writer.name(shard) in names]
        with ThreadPoolExecutor(_READERS) as readers:
            tallies = list(readers.map(lambda shard: _read(writer, shard), written))
    whole = {
        shard.number: found
        for shard, found in zip(written, tallies, strict=True)
        if found.recordings == len(shard.entries)
    }
    left = [shard for shard in planned if shard.number not in whole]
    return Job(writer, left, sum(whole.values(), Tally()), has_summary and not left)


def _has_summary(folder: Folder) -> bool:
    try:
        folder.read(_SUMMARY)
    except FileNotFoundError:
        return False
    return True


def _is_begun(folder: Folder, settings: Mapping[str, Any]) -> bool:
    """Return whether the folder holds this job; another is an error."""
    try:
        earlier = json.loads(folder.read(_SETTINGS))
    except FileNotFoundError:
        if any(name.startswith("shard-") for name in folder.names()):
            raise JobError(f"{folder.location} holds shards, but not {_SETTINGS} of their job") from None
        return False
    except ValueError as error:
        raise JobError(f"{folder.location}/{_SETTINGS} is damaged: {error}") from error
    if not isinstance(earlier, dict):
        raise JobError(f"{folder.location}/{_SETTINGS} is damaged: it is no JSON object")
    for name in sorted(earlier.keys() | settings.keys()):
        was, now = earlier.get(name), settings.get(name)
        if was != now:
            raise JobError(
                f"{folder.location} holds a job whose {name.replace('_', ' ')} was {was!r}, and now it is {now!r}; "
                "another job needs another folder"
            )
    return True


def _listed(planned: Iterable[Shard]) -> bytes:
    lines = (
        json.dumps([shard.number, entry.audio, entry.location, entry.seconds])
        for shard in planned
        for entry in shard.entries
    )
    return ("\n".join(lines) + "\n").encode()


def _planned(folder: Folder) -> list[Shard]:
    try:
        lines = [json.loads(line) for line in folder.read(_RECORDINGS).splitlines()]
        return [
            Shard(number, tuple(Entry(audio, location, seconds) for _, audio, location, seconds in members))
            for number, members in groupby(lines, key=lambda line: line[0])
        ]
    except (ValueError, TypeError, LookupError) as error:
        raise JobError(f"{folder.location}/{_RECORDINGS} is damaged: {error}") from error


def _read(writer: ShardWriter, shard: Shard) -> Tally:
    """Return the tally of a shard's file: none if it is damaged, so that the shard is done again."""
    try:
        return counted(writer.folder.read(writer.name(shard)))
    except ValueError:
        return Tally()


def _pretty(fields: Mapping[str, Any]) -> bytes:
    return (json.dumps(fields, indent=2, ensure_ascii=False) + "\n").encode()
