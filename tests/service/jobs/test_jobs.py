"""What becomes of a job for which there is no room, of its result at the end of the service, and of webhooks."""

import asyncio
import threading
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from service.jobs.job import Delivery, JobResult
from service.jobs.jobs import Jobs, LaterError
from service.metrics import Metrics
from tests.asynchronous import asynchronous
from tests.service.jobs.test_store import RESULT, add, store_in
from tests.service.serving import PATIENCE

FULL = JobResult(503, "application/json", b"{}", "overloaded", "no room")


class Attempts:
    """Stands in for the transcription; the clock moves to where the job is due."""

    def __init__(self, folder, outcomes):
        self.store, self.outcomes, self.began, self.now = store_in(folder), outcomes, [], 1000.0
        self.metrics = Metrics()
        self.jobs = Jobs(
            self.store,
            transcribe=self.transcribe,
            is_ready=lambda: True,
            retention_seconds=60.0,
            outbound=None,
            metrics=self.metrics,
            clock=lambda: self.now,
        )

    async def transcribe(self, job, recording):
        self.began.append(self.now)
        outcome = self.outcomes.pop(0) if self.outcomes else RESULT
        if isinstance(outcome, LaterError):
            raise outcome
        return outcome

    async def run(self):
        """Begin the job whenever it is due, until it is finished."""
        add(self.store, "a")
        while self.store.find("a").finished is None:
            self.now = max(self.now, self.store.next_moment())
            await self.jobs._run_job(self.store.start_next(self.now))
        job = self.store.find("a")
        self.store.close()
        return job


@asynchronous
async def test_a_job_for_which_there_never_is_room_fails_after_ten_hours(tmp_path):
    attempts = Attempts(tmp_path, [LaterError(1.0, FULL)] * 1000)

    job = await attempts.run()

    assert (job.state, job.error_code, job.error_message) == ("failed", "overloaded", "no room")
    assert len(attempts.began) == 20
    assert attempts.began[1] - attempts.began[0] == 5.0
    assert attempts.began[-1] - attempts.began[0] == pytest.approx(10 * 3600, rel=0.1)


@asynchronous
async def test_a_job_waits_for_its_keys_limit_however_long_that_takes(tmp_path):
    attempts = Attempts(tmp_path, [LaterError(1e6)] * 300)

    assert (await attempts.run()).state == "completed"
    assert len(attempts.began) == 301


@asynchronous
async def test_a_job_waits_for_the_time_that_it_is_given(tmp_path):
    attempts = Attempts(tmp_path, [LaterError(60.0, FULL)])

    assert (await attempts.run()).state == "completed"
    assert attempts.began == [1000.0, 1060.0]


@asynchronous
async def test_a_result_that_is_there_when_the_service_stops_is_kept(tmp_path):
    attempts = Attempts(tmp_path, [])

    add(attempts.store, "a")
    job, released = attempts.store.start_next(1000.0), threading.Event()
    attempts.jobs._thread.submit(released.wait)
    running = asyncio.create_task(attempts.jobs._run_job(job))
    while not attempts.began:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # the result waits for the store
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    released.set()
    await attempts.jobs._in_thread(int)

    assert attempts.store.find("a").state == "completed"
    attempts.store.close()


class HangingOutbound:
    """Stands in for requests: a host never answers, the others do at once."""

    def __init__(self):
        self.delivered = asyncio.Event()

    @asynccontextmanager
    async def request(self, method, url, *, headers, content, client):
        if "hangs" in url:
            await asyncio.Event().wait()
        self.delivered.set()
        yield SimpleNamespace(status=200)

    async def aclose(self):
        pass


@asynchronous
async def test_a_receiver_that_does_not_answer_delays_no_other(tmp_path):
    store = store_in(tmp_path, max_jobs=1000)
    for number in range(200):
        host = "hangs" if number < 199 else "answers"
        add(store, f"{number}", delivery=Delivery(f"https://{host}.example/", "a secret of some length", "key alice"))
        store.start_next(1.0)
        store.finish(f"{number}", RESULT, 2.0 + number, 1e9)

    outbound = HangingOutbound()
    jobs = Jobs(
        store,
        transcribe=None,
        is_ready=lambda: False,
        retention_seconds=60.0,
        outbound=outbound,
        metrics=Metrics(),
        clock=lambda: 1000.0,
    )
    running = asyncio.create_task(jobs.run())
    async with asyncio.timeout(PATIENCE):
        await outbound.delivered.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await jobs.close()
