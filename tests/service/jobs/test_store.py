"""After a crash at any moment, the store has all accepted jobs and nothing else."""

import contextlib
import io
import multiprocessing
import os
import sqlite3
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.jobs import store as stores
from service.jobs.job import Delivery, Job, JobResult
from service.jobs.store import CallerFullError, JobsFolderError, JobStore, StoreFullError

RESULT = JobResult(200, "text/plain", b"words", audio_seconds=1.5)
DELIVERY = Delivery("https://hooks.example/", "a secret of some length", "key alice")


def store_in(folder, **limits) -> JobStore:
    return JobStore(folder, **({"max_jobs": 100, "max_jobs_of_caller": None} | limits))


@pytest.fixture
def store(tmp_path):
    opened = store_in(tmp_path)
    yield opened
    opened.close()


def add(store: JobStore, name: str, caller: str | None = "me", delivery: Delivery | None = None, size: int = 5) -> Job:
    job = Job(name, caller, "queued", "m", b"{}", size, 1.0, delivery=delivery)
    store.keep_recording(name, io.BytesIO(b"sound" * (size // 5)))
    store.add(job)
    return job


def test_a_job_is_kept_as_it_came(store):
    job = add(store, "a", delivery=DELIVERY)

    assert store.find("a") == job
    assert store.recording("a").read_bytes() == b"sound"
    assert store.find("b") is None


def test_a_job_that_is_done_leaves_its_result_and_not_its_recording(store):
    add(store, "a")
    taken = store.start_next(2.0)

    assert (taken.id, taken.state, taken.started, taken.attempts) == ("a", "in_progress", 2.0, 1)
    assert store.finish("a", RESULT, 3.0, 10.0)
    assert store.find("a").state == "completed"
    assert store.result("a") == JobResult(200, "text/plain", b"words")
    assert not store.recording("a").exists()
    assert store.find("a").request == b""
    assert store.delete_expired(9.0, 100) == 0
    assert store.delete_expired(10.0, 100) == 1
    assert store.find("a") is None
    assert store.result("a") is None


def test_a_job_that_was_deleted_meanwhile_is_not_finished(store):
    add(store, "a", delivery=DELIVERY)
    store.start_next(2.0)

    assert store.delete("a")
    assert not store.finish("a", RESULT, 4.0, 10.0)
    store.requeue("a", 0.0)
    assert store.find("a") is None
    assert not store.delete("a")
    assert store.start_next(5.0) is None
    assert store.due_deliveries(100.0) == []


def test_callers_take_turns(store):
    for name in ("a1", "a2", "a3"):
        add(store, name, "a")
    add(store, "b1", "b")
    add(store, "c1", None)
    add(store, "c2", None)

    assert [store.start_next(float(now)).id for now in range(2, 8)] == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_job_that_is_queued_again_waits_for_its_time(store):
    add(store, "a")
    store.start_next(2.0)
    store.requeue("a", 50.0)

    assert store.find("a").attempts == 0
    assert store.start_next(49.0) is None
    assert store.next_moment() == 50.0
    assert store.start_next(50.0).id == "a"


def test_the_number_of_jobs_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "MAX_BYTES", 100)
    store = store_in(tmp_path, max_jobs=3, max_jobs_of_caller=2)
    add(store, "a")
    add(store, "b")
    with pytest.raises(CallerFullError):
        add(store, "c")
    add(store, "d", "other")
    with pytest.raises(StoreFullError, match="3 jobs"):
        add(store, "e", "third")
    store.delete("a")
    add(store, "f", "third", size=200)
    store.delete("b")
    with pytest.raises(StoreFullError, match="bytes"):
        add(store, "g", "third")
    store.close()


def test_a_full_disk_refuses_a_job_and_leaves_nothing(store, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(StoreFullError, match="No space"):
        add(store, "a")
    assert store.find("a") is None
    assert not store.recording("a").exists()


def test_webhooks_are_due_until_they_are_delivered(store):
    add(store, "a", delivery=DELIVERY)
    store.start_next(2.0)
    store.finish("a", RESULT, 3.0, 10.0)

    assert store.due_deliveries(3.0) == [("a", DELIVERY.url)]
    store.delivered("a", Delivery(DELIVERY.url, DELIVERY.secret, DELIVERY.client, "pending", 1, "no"), 8.0)
    assert store.due_deliveries(7.0) == []
    assert store.next_moment() == 8.0
    store.delivered("a", Delivery(DELIVERY.url, DELIVERY.secret, DELIVERY.client, "delivered", 2), None)
    assert store.due_deliveries(100.0) == []
    assert store.find("a").delivery == Delivery(DELIVERY.url, DELIVERY.secret, DELIVERY.client, "delivered", 2)


def test_a_folder_is_used_by_one_service_at_a_time(store, tmp_path):
    with pytest.raises(JobsFolderError, match="another service"):
        store_in(tmp_path)


def test_a_wrong_folder_and_a_wrong_database_are_errors(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobsFolderError, match="cannot be used"):
        store_in(tmp_path / "file")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "jobs.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(JobsFolderError, match="cannot be read"):
        store_in(tmp_path / "broken")
    (tmp_path / "newer").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "newer" / "jobs.sqlite")) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(JobsFolderError, match="another version"):
        store_in(tmp_path / "newer")


def test_only_our_own_leftovers_are_deleted(tmp_path):
    store_in(tmp_path).close()
    ours, theirs = (tmp_path / "recordings" / name for name in ("job_" + 32 * "0", "notes.txt"))
    ours.touch()
    theirs.touch()

    store_in(tmp_path).close()

    assert not ours.exists()
    assert theirs.exists()


def test_expired_jobs_go_a_hundred_at_once_and_the_oldest_beyond_the_most(store, monkeypatch):
    for number in range(130):
        add(store, f"{number}")
        store.start_next(1.0)
        store.finish(f"{number}", RESULT, 1.0, expires=10.0 + number)

    assert [store.delete_expired(125.0, 100) for _ in range(3)] == [100, 16, 0]
    assert [store.delete_expired(125.0, 4) for _ in range(2)] == [10, 0]
    assert [store.find(f"{number}") is not None for number in (125, 126, 129)] == [False, True, True]


def written(path) -> int:
    """The size of a database, with all that was committed."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path.stat().st_size


def test_the_room_of_deleted_jobs_is_given_back(store, tmp_path):
    for number in range(20):
        add(store, f"{number}")
        store.start_next(1.0)
        store.finish(f"{number}", JobResult(200, "text/plain", bytes(100_000)), 1.0, expires=10.0)
    before = written(tmp_path / "jobs.sqlite")

    store.delete_expired(10.0, 100)

    assert written(tmp_path / "jobs.sqlite") < before / 10


def test_no_other_user_can_read_the_files(store, tmp_path):
    assert stat.S_IMODE((tmp_path / "jobs.sqlite").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "recordings").stat().st_mode) == 0o700


def work_until_killed(folder, fifo) -> None:
    """Add and do jobs for ever; print each job that was accepted."""
    told = os.open(fifo, os.O_WRONLY)
    store = store_in(folder, max_jobs=10**6)
    number = 0
    while True:
        number += 1
        add(store, f"job_{number:032x}")  # as the service names them: others are not deleted at a start
        os.write(told, b"+%d\n" % number)
        if number % 3 == 0 and (job := store.start_next(float(number))):
            store.finish(job.id, RESULT, float(number), 1e9)
            os.write(told, b"-%d\n" % int(job.id.removeprefix("job_"), 16))


@pytest.mark.parametrize("lines", [1, 7, 40])
def test_accepted_jobs_are_there_after_kill_9(tmp_path, lines):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = multiprocessing.get_context("spawn").Process(target=work_until_killed, args=(tmp_path / "jobs", fifo))
    process.start()
    with fifo.open("rb") as told:
        said = [told.readline() for _ in range(lines)]
        process.kill()
        process.join()
        said += told.read().splitlines()

    store = store_in(tmp_path / "jobs")
    for line in said:
        job = f"job_{int(line[1:]):032x}"
        state = store.find(job).state
        if line.startswith(b"-"):
            assert (state, store.result(job).body) == ("completed", b"words")
        else:
            assert state in ("queued", "completed")
            assert state == "completed" or store.recording(job).read_bytes() == b"sound"
    assert all(store.find(path.name).state == "queued" for path in (tmp_path / "jobs" / "recordings").iterdir())
    store.close()
    process.close()


def test_a_job_that_the_service_was_lost_with_three_times_is_not_begun_again(tmp_path):
    for attempt in range(1, 4):
        store = store_in(tmp_path)
        if attempt == 1:
            add(store, "a")
        assert store.lost() == []
        assert store.start_next(1.0).attempts == attempt
        store.close()

    store = store_in(tmp_path)
    assert store.start_next(1.0) is None
    assert store.lost() == ["a"]
    store.close()


STEPS = st.lists(st.sampled_from(["add", "start", "finish", "requeue", "delete", "restart"]), max_size=40)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_recordings_are_those_of_unfinished_jobs(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("jobs")
    store, under_way, added = store_in(folder), [], 0
    for step in steps:
        if step == "add":
            added += 1
            add(store, str(added))
        elif step == "start" and (job := store.start_next(1.0)):
            under_way.append(job.id)
        elif step == "finish" and under_way:
            store.finish(under_way.pop(), RESULT, 1.0, 2.0)
        elif step == "requeue" and under_way:
            store.requeue(under_way.pop(), 0.0)
        elif step == "delete" and added:
            store.delete(str(added // 2 + 1))
        elif step == "restart":
            store.close()
            store, under_way = store_in(folder), []
        jobs = [store.find(str(number)) for number in range(1, added + 1)]
        unfinished = {job.id for job in jobs if job and job.finished is None}
        assert {path.name for path in (folder / "recordings").iterdir()} == unfinished
        assert sum(store.counts().values()) == len(unfinished)
    store.close()
