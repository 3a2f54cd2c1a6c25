"""Runs jobs: starts them when there is room, delivers webhooks, deletes expired ones. Runs on one event loop."""

import asyncio
import contextlib
import logging
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import httpx
import orjson

from service.jobs import webhook
from service.jobs.job import Delivery, DeliveryState, Job, JobResult
from service.jobs.store import JobStore
from service.metrics import Metrics
from service.outbound import ForbiddenUrlError, NoLookupError, Outbound, UnreachableError
from service.threads import in_thread
from service.tracing import Trace, Traceparent, under

log = logging.getLogger("steno.jobs")

T = TypeVar("T")

_LATER_SECONDS = (5.0, 300.0)  # bounds of the wait that a LaterError asks for
# A job for which there is no room tries again after 5 s, 10 s and so on, at most an hour, and fails after ten hours.
# Every attempt may decode its whole recording.
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 5.0, 3600.0
_MOST_REFUSALS = 20
_FULL_SECONDS = 5.0
_READY_SECONDS = 0.25  # between two checks whether the service is ready
# At the same time; a slow receiver delays no others, nor do all receivers of one client.
_MOST_DELIVERIES, _MOST_DELIVERIES_OF_HOST, _MOST_DELIVERIES_OF_CLIENT = 32, 4, 8
_NO_LOOKUP_SECONDS = 5.0
_DELIVERY_SECONDS = 10.0
_MOST_RUNNING = 2  # at the same time; the others wait on disk
_COPIES = 4  # recordings that are copied at the same time
_MOST_FINISHED = 10_000  # jobs with their results; then the oldest go before their time
_GONE = 410


class LaterError(Exception):
    """There is no room for a job now.

    Attributes:
        seconds: seconds after which to try again, at least.
        failure: result of the job if there never is room; None if waiting is expected, as for a key's limit.
    """

    def __init__(self, seconds: float, failure: JobResult | None = None) -> None:
        super().__init__(f"later, in {seconds:g} s")
        self.seconds = seconds
        self.failure = failure


Transcribe = Callable[[Job, Path], Awaitable[JobResult]]
"""Transcribes the recording of a job. Raises LaterError if there is no room; a client's error is a result."""


class Jobs:
    """The jobs of a service.

    Args:
        is_ready: returns whether the service can run a job now.
        retention_seconds: how long a finished job and its result are kept.
        outbound: sends webhooks, and checks their addresses.
        clock: returns Unix time.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        transcribe: Transcribe,
        is_ready: Callable[[], bool],
        retention_seconds: float,
        outbound: Outbound,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._transcribe = transcribe
        self._is_ready = is_ready
        self._retention_seconds = retention_seconds
        self.outbound = outbound
        self._metrics = metrics
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "jobs")
        self._copying = ThreadPoolExecutor(_COPIES, "job-copies")
        self._changed = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._delivering: dict[str, asyncio.Task[None]] = {}
        self._hosts: Counter[str] = Counter()
        self._clients: Counter[str] = Counter()

    async def run(self) -> None:
        """Run jobs until cancelled; then running jobs are queued again."""
        try:
            for job in await self._retrying(self._store.lost):
                lost = _server_error("engine_lost", "The service was lost with this recording, three times.")
                await self._finish(job, lost)
            while True:
                self._changed.clear()
                seconds = await self._start_due()
                try:
                    async with asyncio.timeout(seconds):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            tasks = [*self._running.values(), *self._delivering.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_due(self) -> float | None:
        """Start what is due; return the seconds until something is due next."""
        try:
            await self._start_jobs()
            await self._delete_expired()
            await self._start_deliveries()
            await self._update_gauges()
            return await self._seconds_until_next()
        except Exception:  # such as a full disk, which may have room again; and a bug must not end the jobs of others
            log.exception("the jobs do not go on; another try follows")
            return _FULL_SECONDS

    async def close(self) -> None:
        """Close the store, so that another service may use the folder."""
        await self.outbound.aclose()
        await self._in_thread(self._store.close)
        self._thread.shutdown()
        self._copying.shutdown()

    async def check_room(self, caller: str | None) -> None:
        """Check that there is room for a job of a caller.

        Raises:
            StoreFullError: if there is none.
        """
        await self._in_thread(lambda: self._store.check_room(caller))

    async def add(self, job: Job, recording: BinaryIO) -> None:
        """Accept a job: when this returns, it is on the disk.

        Raises:
            StoreFullError: if there is no room.
        """
        await self.check_room(job.caller)
        # In threads of their own: copying and syncing a gigabyte would hold up the polls of all.
        copy = self._copying.submit(self._store.keep_recording, job.id, recording)
        try:
            await asyncio.shield(asyncio.wrap_future(copy))
        except asyncio.CancelledError:  # the client has left
            copy.add_done_callback(lambda _: self._store.drop_recording(job.id))
            raise
        await self._in_thread(lambda: self._store.add(job))
        self._changed.set()

    async def find(self, job: str, caller: str | None) -> Job | None:
        """Return a job of a caller."""
        found = await self._in_thread(lambda: self._store.find(job))
        return found if found is not None and found.caller == caller else None

    async def listed(self, caller: str | None, *, after: str | None, limit: int) -> list[Job]:
        """Return jobs of a caller, the newest first; with ``after``, those older than this job."""
        return await self._in_thread(lambda: self._store.listed(caller, after=after, limit=limit))

    async def result(self, job: Job) -> JobResult | None:
        """Return the result of a completed or failed job."""
        return await self._in_thread(lambda: self._store.result(job.id))

    async def delete(self, job: Job) -> None:
        """Delete a job, and stop it if it is under way."""
        # Written first, so that a running job can then neither be finished nor queued again.
        is_cancelled = await self._in_thread(lambda: self._store.delete(job.id))
        if task := self._running.get(job.id):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._changed.set()
        if is_cancelled:
            self._metrics.jobs.labels("cancelled").inc()

    async def _start_jobs(self) -> None:
        while self._is_ready() and len(self._running) < _MOST_RUNNING:
            job = await self._in_thread(lambda: self._store.start_next(self._clock()))
            if job is None:
                return
            self._start_task(self._running, job.id, self._run_job(job))

    async def _run_job(self, job: Job) -> None:
        log.info("job started", extra={"job": job.id, "attempt": job.attempts})
        try:
            result = await self._transcribe(job, self._store.recording(job.id))
        except LaterError as later:
            await self._requeue_or_fail(job, later)
        except asyncio.CancelledError:
            with contextlib.suppress(sqlite3.Error):  # the next start does it
                await self._in_thread(lambda: self._store.requeue(job.id, 0.0))
            raise
        except Exception:  # a bug of ours: a client's error is a result
            log.exception("job failed", extra={"job": job.id})
            await self._finish(job.id, _server_error("internal_error", "The server failed on this recording."))
        else:
            await self._finish(job.id, result)

    async def _requeue_or_fail(self, job: Job, later: LaterError) -> None:
        least, most = _LATER_SECONDS
        seconds, is_refused = min(max(later.seconds, least), most), later.failure is not None
        if later.failure is not None:
            if job.refusals + 1 >= _MOST_REFUSALS:
                await self._finish(job.id, later.failure)
                return
            seconds = max(seconds, min(_FIRST_WAIT_SECONDS * 2**job.refusals, _LONGEST_WAIT_SECONDS))
        log.info("job queued again", extra={"job": job.id})
        not_before = self._clock() + seconds
        await self._retrying(lambda: self._store.requeue(job.id, not_before, is_refused=is_refused))

    async def _finish(self, job: str, result: JobResult) -> None:
        now = self._clock()
        expires = now + self._retention_seconds
        if await self._retrying(lambda: self._store.finish(job, result, now, expires)):
            self._metrics.jobs.labels("failed" if result.error_code else "completed").inc()

    async def _delete_expired(self) -> None:
        while deleted := await self._in_thread(lambda: self._store.delete_expired(self._clock(), _MOST_FINISHED)):
            self._metrics.jobs.labels("expired").inc(deleted)

    async def _start_deliveries(self) -> None:
        if len(self._delivering) >= _MOST_DELIVERIES:
            return
        for name, url in await self._in_thread(lambda: self._store.due_deliveries(self._clock())):
            host = httpx.URL(url).host
            if name in self._delivering or self._hosts[host] >= _MOST_DELIVERIES_OF_HOST:
                continue
            job = await self._in_thread(lambda name=name: self._store.find(name))  # type: ignore[misc]
            if job is None or job.delivery is None:  # deleted meanwhile
                continue
            if self._clients[job.delivery.client] >= _MOST_DELIVERIES_OF_CLIENT:
                continue
            self._hosts[host] += 1
            self._clients[job.delivery.client] += 1
            self._start_task(self._delivering, name, self._deliver(job, job.delivery, host))
            if len(self._delivering) >= _MOST_DELIVERIES:
                return

    async def _deliver(self, job: Job, delivery: Delivery, host: str) -> None:
        try:
            error, is_final = await self._post(job, delivery)
        except NoLookupError:  # it was no attempt
            later = self._clock() + _NO_LOOKUP_SECONDS
            await self._retrying(lambda: self._store.delivered(job.id, delivery, later))
            return
        finally:
            self._hosts[host] -= 1
            self._clients[delivery.client] -= 1
        attempts, now = delivery.attempts + 1, self._clock()
        due = None
        state: DeliveryState = "pending"
        if error is None:
            state = "delivered"
        elif is_final or attempts > len(webhook.RETRY_SECONDS):
            state = "failed"
        else:  # spread, because many are due at once after a receiver was down
            due = now + webhook.RETRY_SECONDS[attempts - 1] * random.uniform(0.8, 1.2)  # noqa: S311
        outcome = "retried" if state == "pending" else state
        self._metrics.webhook_deliveries.labels(outcome).inc()
        why = {"why": error} if error else {}
        log.info("webhook", extra={"job": job.id, "outcome": outcome, "attempt": attempts, **why})
        updated = replace(delivery, state=state, attempts=attempts, error=error)
        await self._retrying(lambda: self._store.delivered(job.id, updated, due))

    async def _post(self, job: Job, delivery: Delivery) -> tuple[str | None, bool]:
        """Try to deliver; return why it failed (None if it did not), and whether more attempts are useless."""
        content = webhook.body(job)
        headers = webhook.headers(job, delivery.secret, content, self._clock())
        try:
            async with asyncio.timeout(_DELIVERY_SECONDS):
                with under(_trace(job)):
                    async with self.outbound.request(
                        "POST", delivery.url, headers=headers, content=content, client=delivery.client
                    ) as response:
                        status = response.status
        except ForbiddenUrlError as error:
            return str(error), True
        except NoLookupError:
            raise
        except UnreachableError as error:
            return str(error), False
        except TimeoutError:
            return f"no answer within {_DELIVERY_SECONDS:g} s", False
        return (None, False) if 200 <= status < 300 else (f"it answered {status}", status == _GONE)

    def _start_task(self, tasks: dict[str, asyncio.Task[None]], job: str, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        tasks[job] = task

        def done(_: "asyncio.Future[None]") -> None:
            tasks.pop(job, None)
            self._changed.set()

        task.add_done_callback(done)

    async def _update_gauges(self) -> None:
        for state, count in (await self._in_thread(self._store.counts)).items():
            self._metrics.jobs_unfinished.labels(state).set(count)

    async def _seconds_until_next(self) -> float | None:
        if not self._is_ready():
            return _READY_SECONDS
        moment = await self._in_thread(self._store.next_moment)
        # Due work that could not start waits for running work, whose end wakes this loop.
        return None if moment is None else max(1.0, moment - self._clock())

    async def _retrying(self, work: Callable[[], T]) -> T:
        """Change the store; while it cannot be written, try again, because a finished job must not run again.

        If the call is cancelled, the change is tried once all the same, before the store is closed.
        """
        while True:
            try:
                return await asyncio.shield(asyncio.wrap_future(self._thread.submit(work)))
            except (sqlite3.Error, OSError):
                log.exception("the jobs cannot be written")
                await asyncio.sleep(_FULL_SECONDS)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run a call of the store; one that has begun goes on to its end, even if the caller is cancelled."""
        return await in_thread(self._thread, work)


def _server_error(code: str, message: str) -> JobResult:
    """Return the result of a job that failed because of the server; `service/http/errors.py` has the same body."""
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return JobResult(500, "application/json", orjson.dumps({"error": error}), code, message)


def _trace(job: Job) -> Trace | None:
    """Return the trace of the request that a job was made with."""
    parent = Traceparent.parse(job.traceparent or "")
    return None if parent is None else Trace(parent)
