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
from service.workers.board import Board, publish
from service.workers.desk import Desk, Parts
from service.workers.protocol import Finish, FromWorker, KeyEntry, Keys, ModelEntry, Models, Start, ToWorker
from service.workers.stream import Stream, from_worker
from service.workers.totals import Totals

log = logging.getLogger("steno.workers")

_MODULE = "service.workers.process"
_PUBLISH_SECONDS = 0.02
_WATCH_SECONDS = 1.0
# A worker sends its metrics every second. One that is silent for this long answers no client.
_SILENCE_SECONDS = 30.0
_TELL_SECONDS = 1.0
# Longer than a worker waits for answers that are being written, and for its spans to be sent.
_FINISH_SECONDS = 20.0
_EXIT_SECONDS = 5.0
_FAILED_STARTS = 5
_BACKOFF_SECONDS = (0.0, 0.5, 2.0, 5.0, 10.0)


class WorkerStartError(RuntimeError):
    """No worker can be started; the message says why in one line."""


class _Worker:
    """A running worker."""

    def __init__(
        self, process: asyncio.subprocess.Process, stream: Stream[FromWorker], desk: Desk, memory: int
    ) -> None:
        self.process = process
        self.stream = stream
        self.desk = desk
        self.memory = memory


class Crew:
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
        self._rows = settings.http_processes + 1
        self._board_file = unnamed_file()
        self.board = Board(self._board_file, self._rows, 0)
        self._totals = Totals(metrics.registry)
        self._workers: dict[int, _Worker] = {}
        self._finishing = asyncio.Event()
        self._version = 0
        self._looked = asyncio.Event()  # set when the board was looked at
        self._parts: Parts | None = None

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers.values()]

    async def run(self, listener: socket.socket, parts: Parts) -> None:
        """Keep the workers running until `finish`.

        Args:
            listener: the socket on which they accept connections.
            parts: what they use of this process.

        Raises:
            WorkerStartError: if a worker cannot be started, again and again.
        """
        self._parts = parts
        catalog = parts.dispatcher.catalog
        catalog.on_change, catalog.until_known = self._send_models, self._until_known
        watching = asyncio.create_task(self._watch())
        keeping = [asyncio.create_task(self._keep(row, listener, parts)) for row in range(1, self._rows)]
        try:
            await asyncio.gather(*keeping)
        finally:
            self._finishing.set()
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            watching.cancel()
            listener.close()
            os.close(self._board_file)

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
        while self.board.total(0):
            await self._looked.wait()

    def publish(self) -> None:
        """Tell all gates the state of the queue."""
        assert self._parts is not None
        publish(self.board, self._parts.dispatcher.admission)

    def replace_keys(self, keys: Sequence[Key]) -> None:
        """Tell all workers the keys."""
        self._keys = keys
        self._send(self._key_message())

    async def exposition(self) -> bytes:
        """Return the metrics of all processes."""
        desks = [worker.desk for worker in self._workers.values() if worker.desk.is_up]
        with contextlib.suppress(TimeoutError):  # one that is late is as it was a second ago
            async with asyncio.timeout(_TELL_SECONDS):
                await asyncio.gather(*(desk.tell() for desk in desks))
        snapshots = [worker.desk.samples for worker in self._workers.values()]
        return await asyncio.to_thread(self._totals.exposition, snapshots)

    async def _keep(self, row: int, listener: socket.socket, parts: Parts) -> None:
        failed_starts = 0
        while not self._finishing.is_set():
            try:
                worker = await self._start(row, listener, parts)
            except OSError as error:  # no descriptor, no process, no memory
                log.error("no worker can be started now", extra={"reason": str(error)})  # noqa: TRY400
                was_up = False
            else:
                was_up = await self._attend(row, worker)
            failed_starts = 0 if was_up else failed_starts + 1
            if failed_starts == _FAILED_STARTS:
                raise WorkerStartError("no HTTP process can be started")
            if not self._finishing.is_set():
                self._metrics.http_process_restarts.inc()
                with contextlib.suppress(TimeoutError):
                    pause = _BACKOFF_SECONDS[min(failed_starts, len(_BACKOFF_SECONDS) - 1)]
                    await asyncio.wait_for(self._finishing.wait(), pause)

    async def _start(self, row: int, listener: socket.socket, parts: Parts) -> _Worker:
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
                    "--board": self._board_file,
                }
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", _MODULE, *self._arguments),
                    *(part for flag, number in numbers.items() for part in (flag, str(number))),
                    pass_fds=tuple(numbers.values()),
                    stdin=asyncio.subprocess.DEVNULL,
                )
            stream = Stream(from_worker)
            desk = Desk(parts, memory, stream.send)
            await stream.open(ours, desk.take)
            unless_started.pop_all()
        worker = self._workers[row] = _Worker(process, stream, desk, memory)
        stream.send(Start(self._settings.model_dump_json().encode(), row))
        stream.send(self._key_message())
        stream.send(self._models_message())
        if self._finishing.is_set():
            stream.send(Finish())
        log.info("worker started", extra={"pid": process.pid})
        return worker

    async def _attend(self, row: int, worker: _Worker) -> bool:
        """Wait until a worker is gone, and take back what it had; return whether it ever answered."""
        try:
            await worker.stream.lost
        finally:
            worker.stream.close()
            del self._workers[row]
            await worker.desk.close()
            await _end(worker.process)
            os.close(worker.memory)
            self.board.clear(row)
            self._totals.retire(worker.desk.samples)
            self.publish()
            level = logging.INFO if self._finishing.is_set() else logging.ERROR
            log.log(level, "worker gone", extra={"pid": worker.process.pid, "status": worker.process.returncode})
        return worker.desk.is_up

    async def _watch(self) -> None:
        """Publish the state of the queue, and kill workers that are silent."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            self.publish()
            await asyncio.sleep(_PUBLISH_SECONDS)
            now = loop.time()
            for worker in self._workers.values():
                if now - looked > _WATCH_SECONDS:
                    worker.desk.last_message = now  # this process was stopped, and has not read what came meanwhile
                elif worker.desk.is_up and now - worker.desk.last_message > _SILENCE_SECONDS:
                    log.error("worker stuck", extra={"pid": worker.process.pid})
                    worker.process.send_signal(signal.SIGKILL)
            self._metrics.http_processes.set(sum(worker.desk.is_up for worker in self._workers.values()))
            looked = now
            self._looked.set()
            self._looked = asyncio.Event()

    def _send(self, message: ToWorker) -> None:
        for worker in self._workers.values():
            worker.stream.send(message)

    def _send_models(self) -> None:
        self._version += 1
        self._send(self._models_message())

    async def _until_known(self) -> None:
        version = self._version
        await asyncio.gather(*(worker.desk.until_seen(version) for worker in self._workers.values()))

    def _models_message(self) -> Models:
        assert self._parts is not None
        entries = [
            ModelEntry(
                *(model.id, model.checkpoint, model.ready, model.is_leaving, model.is_on_demand, model.identifies)
            )
            for model in self._parts.dispatcher.catalog
        ]
        return Models(self._version, entries)

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
