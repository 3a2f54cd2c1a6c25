"""A job goes on where it was; a folder holds one job."""

import json

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bulk.entries import Entry
from bulk.errors import JobError
from bulk.file_transcripts import Failed, Transcribed
from bulk.job import open_job
from bulk.rows import Tally
from bulk.storage import Folder
from models import Transcript

SETTINGS = {"input": "/archive", "detail": "text", "model": "bundled"}
RECORDINGS = [Entry(f"{number}.wav", f"/archive/{number}.wav", float(10 - number)) for number in range(10)]
HEARD = Transcribed(2.0, Transcript("x", [], [], []))


@pytest.fixture(params=["folder", "store"])
def folder(request, tmp_path):
    if request.param == "folder":
        return Folder(str(tmp_path / "out"))
    fsspec.filesystem("memory").store.clear()
    return Folder("memory://out")


def begin(folder, recordings=RECORDINGS):
    return open_job(folder, SETTINGS, lambda: recordings, shard_seconds=12.0)


def written(job, shard):
    return job.writer.write(shard, [Failed("damaged"), *[HEARD] * (len(shard.entries) - 1)])


def test_written_shards_are_not_done_again_and_their_rows_are_counted(folder):
    job = begin(folder)
    first, second, *others = job.left
    for shard in (first, second):
        written(job, shard)

    again = begin(folder)

    assert (again.left, again.earlier) == (others, Tally(4, 2, 4.0))
    assert again.recordings_left == 6


def test_a_truncated_or_damaged_shard_is_done_again(folder):
    job = begin(folder)
    first, second, *others = job.left
    for shard in (first, second):
        written(job, shard)
    whole = folder.read(job.writer.name(first))
    folder.write(job.writer.name(first), whole.splitlines(keepends=True)[0])
    folder.write(job.writer.name(second), whole[:-5])

    again = begin(folder)

    assert (again.left, again.earlier) == ([first, second, *others], Tally())


def test_a_resumed_job_ignores_recordings_that_came_later(folder):
    before = begin(folder).left

    assert begin(folder, [*RECORDINGS, Entry("new.wav", "/archive/new.wav", 100.0)]).left == before


def test_a_job_whose_start_was_interrupted_starts_again(folder):
    folder.write("_job/recordings.jsonl", b'[0, "old')

    assert begin(folder).recordings_left == 10


@pytest.mark.parametrize("damaged", ["_job/settings.json", "_job/recordings.jsonl"])
@pytest.mark.parametrize("content", [b"[1", b"[1]", b"1"])
def test_a_damaged_job_is_an_error(folder, damaged, content):
    begin(folder)
    folder.write(damaged, content)

    with pytest.raises(JobError, match="damaged"):
        begin(folder)


def test_shards_without_their_job_are_not_overwritten(folder):
    folder.write("shard-000000.jsonl", b"{}")

    with pytest.raises(JobError, match=r"holds shards, but not _job/settings\.json of their job"):
        begin(folder)


def test_the_end_is_written_and_what_killed_writers_left_is_removed(tmp_path):
    folder = Folder(str(tmp_path))
    job = begin(folder)
    left_over = (tmp_path / ".shard-000000.jsonl.0123.partial", tmp_path / "_job/.settings.json.0123.partial")
    for partial in left_over:
        partial.write_text("half")

    job.end({"recordings": 10})

    assert json.loads(folder.read("_job/summary.json")) == {"recordings": 10}
    assert not any(partial.exists() for partial in left_over)


class LockedStore(MemoryFileSystem):
    protocol = "locked"

    def ls(self, path, detail=True, **_):
        raise RuntimeError("no password")


@pytest.mark.parametrize(
    ("location", "why"), [("teapot://out", "Protocol not known"), ("locked://out", "RuntimeError: no password")]
)
def test_an_object_store_that_cannot_be_used_is_an_error(location, why):
    fsspec.register_implementation("locked", LockedStore, clobber=True)

    with pytest.raises(JobError, match=f"^{location}: {why}"):
        begin(Folder(location))


def test_a_write_that_fails_leaves_what_there_was(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))
    folder.write("shard", b"before")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(OSError, match="No space left"):
        folder.write("shard", b"after")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"shard": b"before"}
