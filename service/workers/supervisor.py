"""Starts the workers, watches them, and replaces those that end or hang."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from audio.descriptor import unnamed_file
from service.http.access import Key
from service.http.allowance import KeyLimits
from service.metrics import Metrics
from service.settings import Settings
from service.workers.protocol import Finish, FromWorker, KeyEntry, Keys, ModelEntry, Models, Start, ToWorker
from service.workers.session import MainProcess, Session
from service.workers.shared_counts import SharedCounts
from service.workers.stream import Stream, from_worker
from service.workers.totals import Totals

log = logging.getLogger("steno.workers")

_MODULE = "service.workers.process"
_PUBLISH_SECONDS = 0.02
_WATCH_SECONDS = 1.0
# A worker sends its metrics every second. One that is silent for this long answers no client.
_SILENCE_SECONDS = 30.0
_SNAPSHOT_SECONDS = 1.0
# Longer than a worker waits for answers that are being written, and for its spans to be sent.
_FINISH_SECONDS = 20.0
_EXIT_SECONDS = 5.0
_FAILED_STARTS = 5
_BACKOFF_SECONDS = (0.0, 0.5, 2.0, 5.0, 10.0)


class WorkerStartError(RuntimeError):
    """No worker can be started; the message says why in one line."""


class _RunningWorker:
    """A running worker."""

    def __init__(
        self, process: asyncio.subprocess.Process, stream: Stream[FromWorker], session: Session, memory: int
    ) -> None:
        self.process = process
        self.stream = stream
        self.session = session
        self.memory = memory


class WorkerSupervisor:
    """The workers of a service.

    Args:
        settings: the settings.
        metrics: metrics of the main process.
        keys: the API keys.
        arguments: further arguments of each worker's command line.
    """

    def __init__(self, settings: Settings, metrics: Metrics, keys: Sequence[Key], arguments: Sequence[str]) -> None:
        self._settings = settings
        self._metrics = metrics
        self._keys = keys
        self._arguments = arguments
        self._processes = settings.http_processes + 1
        self._counts_file = unnamed_file()
        self.counts = SharedCounts(self._counts_file, self._processes, 0)
        self._totals = Totals(metrics.registry)
        self._workers: dict[int, _RunningWorker] = {}
        self._finishing = asyncio.Event()
        self._models_version = 0
        self._published = asyncio.Event()  # set whenever the state of the queue was published
        self._main: MainProcess | None = None

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers.values()]

    async def run(self, listener: socket.socket, main: MainProcess) -> None:
        """Keep the workers running until `finish`.

        Args:
            listener: the socket on which they accept connections.
            main: what they use of this process.

        Raises:
            WorkerStartError: if a worker cannot be started, again and again.
        """
        self._main = main
        catalog = main.dispatcher.catalog
        catalog.on_change, catalog.until_known = self._send_models, self._until_known
        watching = asyncio.create_task(self._watch())
        keeping = [asyncio.create_task(self._keep_running(row, listener, main)) for row in range(1, self._processes)]
        try:
            await asyncio.gather(*keeping)
        finally:
            self._finishing.set()
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            watching.cancel()
            listener.close()
            os.close(self._counts_file)

    def finish(self) -> None:
        """Have the workers finish what is under way, and exit; kill those that do not."""
        self._finishing.set()
        self._send(Finish())
        asyncio.get_running_loop().call_later(_FINISH_SECONDS, self._kill)

    def _kill(self) -> None:
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()

    async def until_idle(self) -> None:
        """Wait until no process has a request under way."""
        while self.counts.requests.any():
            await self._published.wait()

    def publish(self) -> None:
        """Tell all gates the state of the queue."""
        assert self._main is not None
        self.counts.publish(self._main.dispatcher.admission)

    def replace_keys(self, keys: Sequence[Key]) -> None:
        """Tell all workers the keys."""
        self._keys = keys
        self._send(self._key_message())

    async def exposition(self) -> bytes:
        """Return the metrics of all processes."""
        sessions = [worker.session for worker in self._workers.values() if worker.session.is_listening]
        with contextlib.suppress(TimeoutError):  # one that is late is as it was a second ago
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                await asyncio.gather(*(session.update_samples() for session in sessions))
        snapshots = [worker.session.samples for worker in self._workers.values()]
        return await asyncio.to_thread(self._totals.exposition, snapshots)

    async def _keep_running(self, row: int, listener: socket.socket, main: MainProcess) -> None:
        failed_starts = 0
        while not self._finishing.is_set():
            try:
                worker = await self._start(row, listener, main)
            except OSError as error:  # no descriptor, no process, no memory
                log.error("no worker can be started now", extra={"reason": str(error)})  # noqa: TRY400
                was_listening = False
            else:
                was_listening = await self._run_until_gone(row, worker)
            failed_starts = 0 if was_listening else failed_starts + 1
            if failed_starts == _FAILED_STARTS:
                raise WorkerStartError("no HTTP process can be started")
            if not self._finishing.is_set():
                self._metrics.http_process_restarts.inc()
                with contextlib.suppress(TimeoutError):
                    pause = _BACKOFF_SECONDS[min(failed_starts, len(_BACKOFF_SECONDS) - 1)]
                    await asyncio.wait_for(self._finishing.wait(), pause)

    async def _start(self, row: int, listener: socket.socket, main: MainProcess) -> _RunningWorker:
        with contextlib.ExitStack() as unless_started:
            ours, theirs = socket.socketpair()
            unless_started.enter_context(ours)
            with theirs:
                memory = unnamed_file()
                unless_started.callback(os.close, memory)
                numbers = {
                    "--socket": theirs.fileno(),
                    "--listener": listener.fileno(),
                    "--memory": memory,
                    "--counts": self._counts_file,
                }
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", _MODULE, *self._arguments),
                    *(part for flag, number in numbers.items() for part in (flag, str(number))),
                    pass_fds=tuple(numbers.values()),
                    stdin=asyncio.subprocess.DEVNULL,
                )
            stream = Stream(from_worker)
            session = Session(main, memory, stream.send)
            await stream.open(ours, session.handle)
            unless_started.pop_all()
        worker = self._workers[row] = _RunningWorker(process, stream, session, memory)
        stream.send(Start(self._settings.model_dump_json().encode(), row))
        stream.send(self._key_message())
        stream.send(self._models_message())
        if self._finishing.is_set():
            stream.send(Finish())
        log.info("worker started", extra={"pid": process.pid})
        return worker

    async def _run_until_gone(self, row: int, worker: _RunningWorker) -> bool:
        """Wait until a worker is gone, and take back what it had; return whether it ever answered."""
        try:
            await worker.stream.lost
        finally:
            worker.stream.close()
            del self._workers[row]
            await worker.session.close()
            await _end(worker.process)
            os.close(worker.memory)
            self.counts.clear(row)
            self._totals.retire(worker.session.samples)
            self.publish()
            level = logging.INFO if self._finishing.is_set() else logging.ERROR
            log.log(level, "worker gone", extra={"pid": worker.process.pid, "status": worker.process.returncode})
        return worker.session.is_listening

    async def _watch(self) -> None:
        """Publish the state of the queue, and kill workers that are silent."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            self.publish()
            await asyncio.sleep(_PUBLISH_SECONDS)
            now = loop.time()
            for worker in self._workers.values():
                if now - last > _WATCH_SECONDS:
                    worker.session.last_message = now  # this process was stopped, and has not read what came meanwhile
                elif worker.session.is_listening and now - worker.session.last_message > _SILENCE_SECONDS:
                    log.error("worker stuck", extra={"pid": worker.process.pid})
                    worker.process.send_signal(signal.SIGKILL)
            self._metrics.http_processes.set(sum(worker.session.is_listening for worker in self._workers.values()))
            last = now
            self._published.set()
            self._published = asyncio.Event()

    def _send(self, message: ToWorker) -> None:
        for worker in self._workers.values():
            worker.stream.send(message)

    def _send_models(self) -> None:
        self._models_version += 1
        self._send(self._models_message())

    async def _until_known(self) -> None:
        version = self._models_version
        await asyncio.gather(*(worker.session.until_known(version) for worker in self._workers.values()))

    def _models_message(self) -> Models:
        assert self._main is not None
        entries = [
            ModelEntry(
                *(model.id, model.checkpoint, model.ready, model.is_leaving, model.is_on_demand, model.identifies)
            )
            for model in self._main.dispatcher.catalog
        ]
        return Models(self._models_version, entries)

    def _key_message(self) -> Keys:
        return Keys([KeyEntry(key.name, key.digest, _limits(key.limits)) for key in self._keys])


def _limits(limits: KeyLimits | None) -> tuple[int | None, int | None, float | None] | None:
    if limits is None:
        return None
    return limits.max_requests, limits.requests_per_minute, limits.audio_seconds_per_minute


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for a process without a stream to exit; kill it if it does not."""
    try:
        await asyncio.wait_for(process.wait(), _EXIT_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
