"""Jobs on disk: an SQLite table, and the recordings beside it. Once `add` returns, a job survives any crash.

All methods block; one thread at a time may call them.
"""

import fcntl
import os
import re
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from service.jobs.job import Delivery, Job, JobResult

MAX_BYTES = 64 << 30  # of the recordings of unfinished jobs
_VERSION = 3
# Names of recordings are ids of jobs. Nothing else is ever deleted.
_RECORDING = re.compile(r"job_[0-9a-f]{32}")
# Expired jobs are deleted in transactions of this size: one for each job would take as many syncs, one for all would
# hold up polls.
_DELETED_AT_ONCE = 100
_PAGES_GIVEN_BACK = 4096  # to the file system, after deleting; 16 MB
_SCHEMA = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    caller TEXT,
    state TEXT NOT NULL,
    model TEXT NOT NULL,
    request BLOB NOT NULL,
    traceparent TEXT,
    file_bytes INTEGER NOT NULL,
    created REAL NOT NULL,
    started REAL,
    finished REAL,
    expires REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    refusals INTEGER NOT NULL DEFAULT 0,
    audio_seconds REAL,
    error_code TEXT,
    error_message TEXT,
    webhook_url TEXT,
    webhook_secret TEXT,
    webhook_client TEXT,
    webhook_state TEXT,
    webhook_attempts INTEGER NOT NULL DEFAULT 0,
    webhook_error TEXT,
    webhook_due REAL
);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_caller ON jobs (caller, number);
CREATE INDEX jobs_by_start ON jobs (caller, started);
CREATE INDEX jobs_by_expiry ON jobs (expires) WHERE expires IS NOT NULL;
CREATE INDEX jobs_by_delivery ON jobs (webhook_due) WHERE webhook_due IS NOT NULL;
CREATE TABLE results (
    id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    status INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    body BLOB NOT NULL
);
"""
_COLUMNS = (
    "id, caller, state, model, request, file_bytes, created, started, finished, expires, attempts, refusals, "
    "audio_seconds, error_code, error_message, traceparent, webhook_url, webhook_secret, webhook_client, "
    "webhook_state, webhook_attempts, webhook_error"
)
_UNFINISHED = "state IN ('queued', 'in_progress')"
# A job that was running at this number of crashes of the service fails: it may be the cause.
_MOST_ATTEMPTS = 3


class JobsFolderError(OSError):
    """The folder of jobs cannot be used; the message says why."""


class StoreFullError(Exception):
    """There is no room for a job; the message says why."""


class CallerFullError(StoreFullError):
    """The caller has as many jobs as it may have."""


class JobStore:
    """The jobs in a folder, which it locks. Jobs that were running at a crash are queued again.

    Args:
        folder: the folder; created if it does not exist.
        max_jobs: most unfinished jobs.
        max_jobs_of_caller: most unfinished jobs of a caller; None is ``max_jobs``.

    Raises:
        JobsFolderError: if the folder cannot be used.
    """

    def __init__(self, folder: Path, *, max_jobs: int, max_jobs_of_caller: int | None) -> None:
        self._recordings = folder / "recordings"
        self._max_jobs = max_jobs
        self._max_jobs_of_caller = max_jobs_of_caller
        path = folder / "jobs.sqlite"
        try:
            self._recordings.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise JobsFolderError(f"the folder of the jobs, {folder}, is used by another service") from None
        except OSError as error:
            raise JobsFolderError(f"the folder of the jobs, {folder}, cannot be used: {error.strerror}") from None
        try:
            self._database = sqlite3.connect(path, isolation_level="IMMEDIATE", check_same_thread=False)
            self._database.row_factory = sqlite3.Row
            os.chmod(path, 0o600)  # noqa: PTH101  # it holds secrets of webhooks
            self._prepare()
            self._recover()
        except (sqlite3.Error, OSError) as error:
            self._lock.close()
            raise JobsFolderError(f"the jobs in {path} cannot be read: {error}") from None

    def close(self) -> None:
        """Close the database and unlock the folder."""
        self._database.close()
        self._lock.close()

    def check_room(self, caller: str | None) -> None:
        """Check that there is room for a job of a caller.

        Raises:
            StoreFullError: if there is none.
        """
        jobs, size = self._one(f"SELECT count(*), total(file_bytes) FROM jobs WHERE {_UNFINISHED}")  # noqa: S608
        if jobs >= self._max_jobs:
            raise StoreFullError(f"{jobs} jobs are not finished")
        if size >= MAX_BYTES:
            raise StoreFullError(f"the recordings of unfinished jobs have {size:.0f} bytes")
        if caller is not None and self._max_jobs_of_caller is not None:
            (own,) = self._one(f"SELECT count(*) FROM jobs WHERE {_UNFINISHED} AND caller = ?", caller)  # noqa: S608
            if own >= self._max_jobs_of_caller:
                raise CallerFullError(f"This key has {own} jobs that are not finished, which is all it may have")

    def keep_recording(self, job: str, recording: BinaryIO) -> None:
        """Copy a recording to the disk, for a job that `add` will store; any thread may call this.

        Raises:
            StoreFullError: if there is no room.
        """
        path = self.recording(job)
        try:
            with path.open("xb") as file:
                shutil.copyfileobj(recording, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self._recordings)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StoreFullError(f"the job cannot be written ({error.strerror})") from error  # without the path

    def drop_recording(self, job: str) -> None:
        """Delete a recording whose job will not be stored; any thread may call this."""
        self.recording(job).unlink(missing_ok=True)

    def add(self, job: Job) -> None:
        """Store a new job, whose recording is on the disk; when this returns, the job is too.

        Raises:
            StoreFullError: if there is no room; then its recording is deleted.
        """
        delivery = job.delivery
        try:
            self.check_room(job.caller)
            with self._database:
                self._database.execute(
                    "INSERT INTO jobs (id, caller, state, model, request, file_bytes, created, traceparent, "
                    "webhook_url, webhook_secret, webhook_client, webhook_state) "
                    "VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(job.id, job.caller, job.model, job.request, job.file_bytes, job.created, job.traceparent),
                        *((delivery.url, delivery.secret, delivery.client, "pending") if delivery else [None] * 4),
                    ),
                )
        except (StoreFullError, sqlite3.OperationalError) as error:
            self.drop_recording(job.id)
            if isinstance(error, StoreFullError):
                raise
            raise StoreFullError(f"the job cannot be written ({error})") from error

    def recording(self, job: str) -> Path:
        """Return the path of a job's recording, which exists until the job is finished."""
        return self._recordings / job

    def find(self, job: str) -> Job | None:
        """Return a job."""
        row = self._one(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", job)  # noqa: S608
        return None if row is None else _job(row)

    def result(self, job: str) -> JobResult | None:
        """Return the answer of a completed or failed job; its error and its length are in the job."""
        row = self._one("SELECT status, media_type, body FROM results WHERE id = ?", job)
        return None if row is None else JobResult(*row)

    def listed(self, caller: str | None, *, after: str | None, limit: int) -> list[Job]:
        """Return at most `limit` jobs of a caller, the newest first; with `after`, those older than this job."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM jobs WHERE caller IS ? "  # noqa: S608
            "AND number < coalesce((SELECT number FROM jobs WHERE id = ?), 9223372036854775807) "
            "ORDER BY number DESC LIMIT ?",
            (caller, after, limit),
        )
        return [_job(row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Return the number of unfinished jobs, by state."""
        rows = self._database.execute(f"SELECT state, count(*) FROM jobs WHERE {_UNFINISHED} GROUP BY state")  # noqa: S608
        return {"queued": 0, "in_progress": 0} | dict(rows)

    def start_next(self, now: float) -> Job | None:
        """Start the oldest job of a caller that is due at this Unix time, and return it; None if none is due.

        Callers with the fewest running jobs go first, and of equals the one whose last job began first.
        """
        row = self._one(
            "SELECT id FROM jobs AS waiting WHERE state = 'queued' AND not_before <= ? ORDER BY "
            "(SELECT count(*) FROM jobs WHERE state = 'in_progress' AND caller IS waiting.caller), "
            "(SELECT coalesce(max(started), 0) FROM jobs WHERE caller IS waiting.caller), number LIMIT 1",
            now,
        )
        if row is None:
            return None
        with self._database:
            self._database.execute(
                "UPDATE jobs SET state = 'in_progress', started = ?, attempts = attempts + 1 WHERE id = ?",
                (now, row["id"]),
            )
        return self.find(row["id"])

    def requeue(self, job: str, not_before: float, *, is_refused: bool = False) -> None:
        """Queue a running job again, not to run before this Unix time, without counting the attempt.

        `is_refused` tells to count that there was no room for it.
        """
        with self._database:
            self._database.execute(
                "UPDATE jobs SET state = 'queued', attempts = attempts - 1, refusals = refusals + ?, not_before = ? "
                "WHERE id = ? AND state = 'in_progress'",
                (int(is_refused), not_before, job),
            )

    def finish(self, job: str, result: JobResult, now: float, expires: float) -> bool:
        """Store the result of a running job, and delete its recording; False if it is not running any more."""
        with self._database:
            changed = self._database.execute(
                "UPDATE jobs SET state = ?, request = x'', finished = ?, expires = ?, audio_seconds = ?, "
                "error_code = ?, error_message = ?, webhook_due = iif(webhook_url IS NULL, NULL, ?) "
                "WHERE id = ? AND state = 'in_progress'",
                (
                    *("failed" if result.error_code else "completed", now, expires, result.audio_seconds),
                    *(result.error_code, result.error_message, now, job),
                ),
            ).rowcount
            if changed:
                self._database.execute(
                    "INSERT INTO results VALUES (?, ?, ?, ?)", (job, result.status, result.media_type, result.body)
                )
        if changed:
            self.recording(job).unlink(missing_ok=True)
        return bool(changed)

    def delete(self, job: str) -> bool:
        """Delete a job with its result and its recording; return whether it was unfinished."""
        with self._database:
            unfinished = self._database.execute(f"DELETE FROM jobs WHERE id = ? AND {_UNFINISHED}", (job,)).rowcount  # noqa: S608
            self._database.execute("DELETE FROM jobs WHERE id = ?", (job,))
        self.recording(job).unlink(missing_ok=True)
        return bool(unfinished)

    def delete_expired(self, now: float, most_finished: int) -> int:
        """Delete some jobs that have expired at this Unix time, or the oldest finished ones beyond a number.

        Returns:
            how many; 0 when none is left to delete.
        """
        with self._database:
            deleted = self._database.execute(
                "DELETE FROM jobs WHERE number IN (SELECT number FROM jobs WHERE expires <= ? LIMIT ?)",
                (now, _DELETED_AT_ONCE),
            ).rowcount
            (finished,) = self._one("SELECT count(*) FROM jobs WHERE expires IS NOT NULL")
            if finished > most_finished:
                deleted += self._database.execute(
                    "DELETE FROM jobs WHERE number IN (SELECT number FROM jobs WHERE expires IS NOT NULL "
                    "ORDER BY expires LIMIT ?)",
                    (min(finished - most_finished, _DELETED_AT_ONCE),),
                ).rowcount
        if deleted:
            self._database.executescript(f"PRAGMA incremental_vacuum({_PAGES_GIVEN_BACK})")
        return deleted

    def due_deliveries(self, now: float) -> list[tuple[str, str]]:
        """Return the ids and addresses of the webhooks that are due, the longest due first."""
        query = "SELECT id, webhook_url FROM jobs WHERE webhook_due <= ? ORDER BY webhook_due"
        return [(job, url) for job, url in self._database.execute(query, (now,))]

    def delivered(self, job: str, delivery: Delivery, due: float | None) -> None:
        """Store the outcome of an attempt, and the Unix time of the next one; None if there will be none."""
        with self._database:
            self._database.execute(
                "UPDATE jobs SET webhook_state = ?, webhook_attempts = ?, webhook_error = ?, webhook_due = ? "
                "WHERE id = ?",
                (delivery.state, delivery.attempts, delivery.error, due, job),
            )

    def next_moment(self) -> float | None:
        """Return the Unix time of the next expiry, webhook or retry; None if there is none."""
        (moment,) = self._one(
            "SELECT min(moment) FROM (SELECT min(expires) AS moment FROM jobs "
            "UNION ALL SELECT min(webhook_due) FROM jobs "
            "UNION ALL SELECT min(not_before) FROM jobs WHERE state = 'queued')"
        )
        return None if moment is None else float(moment)

    def _prepare(self) -> None:
        self._database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect before the first table alone
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")  # in WAL mode NORMAL may lose the last commits
        self._database.execute("PRAGMA foreign_keys = ON")
        (version,) = self._one("PRAGMA user_version")
        if version == 0:
            self._database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise sqlite3.DatabaseError(f"they were written by another version of Steno ({version}, not {_VERSION})")

    def _recover(self) -> None:
        """Queue jobs again that were running at a crash, unless too often; delete recordings that no job needs."""
        with self._database:
            self._database.execute(
                "UPDATE jobs SET state = 'queued' WHERE state = 'in_progress' AND attempts < ?", (_MOST_ATTEMPTS,)
            )
        kept = {job for (job,) in self._database.execute(f"SELECT id FROM jobs WHERE {_UNFINISHED}")}  # noqa: S608
        for path in self._recordings.iterdir():
            if path.name not in kept and _RECORDING.fullmatch(path.name):
                path.unlink()

    def lost(self) -> list[str]:
        """Return jobs that were running at too many crashes; `_recover` left them in progress."""
        query = "SELECT id FROM jobs WHERE state = 'in_progress' AND attempts >= ?"
        return [job for (job,) in self._database.execute(query, (_MOST_ATTEMPTS,))]

    def _one(self, statement: str, *values: Any) -> Any:  # noqa: ANN401  # rows hold anything
        return self._database.execute(statement, values).fetchone()


def _job(row: sqlite3.Row) -> Job:
    *fields, traceparent, url, secret, client, state, attempts, error = row
    delivery = None if url is None else Delivery(url, secret, client, state, attempts, error)
    return replace(Job(*fields), traceparent=traceparent, delivery=delivery)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, which writes the names of new files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
