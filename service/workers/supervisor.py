"""Starts the workers, watches them, and replaces those that end or hang."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial

from service.dispatch.counts import SharedMemory
from service.http.core import LocalCore
from service.http.opening import CLOSE_SECONDS
from service.keys import Key
from service.metrics import Metrics
from service.settings import Settings
from service.shared_audio import shared_file
from service.supervision import end, keep_running, kill, started
from service.workers.protocol import Finish, State, ToWorker
from service.workers.relay import RelayServer
from service.workers.session import Session
from service.workers.totals import Totals

log = logging.getLogger("steno.workers")

_MODULE = "service.workers.process"
_PUBLISH_SECONDS = 0.02
_WATCH_SECONDS = 1.0
# A worker sends its metrics every second. One that is silent for this long answers no client.
_SILENCE_SECONDS = 30.0
_START_SECONDS = 60.0  # until it answers; on a busy machine its imports take long
# Longer than a worker waits for answers that are being written, and for its spans to be sent.
_FINISH_SECONDS = 20.0
_EXIT_SECONDS = 5.0


class WorkerStartError(RuntimeError):
    """No worker can be started; the message says why in one line."""


class WorkerSupervisor:
    """The workers of a service."""

    def __init__(self, settings: Settings, metrics: Metrics, keys: Sequence[Key]) -> None:
        self._metrics = metrics
        self._keys = keys
        self._processes = settings.http_processes + 1
        self._settings_file, self._counts_file = shared_file(), shared_file()
        os.write(self._settings_file, settings.model_dump_json().encode())
        self.shared = SharedMemory(self._counts_file, self._processes, 0)
        self._totals = Totals(metrics.registry)
        self.sessions: dict[int, Session] = {}  # by the worker's row of the shared counts
        self._finishing = asyncio.Event()
        self._was_listening = False  # whether any worker ever answered connections
        self._core: LocalCore
        self._relay: RelayServer

    async def run(self, listener: socket.socket, core: LocalCore, relay: RelayServer) -> None:
        """Keep the workers running until `finish`; they accept connections on one listener.

        Raises:
            WorkerStartError: if a worker fails to start before any has answered connections, or again and again while
                no other answers. While others answer, the service goes on with fewer.
        """
        self._core, self._relay = core, relay
        core.catalog.on_change = self._models_changed
        watching = asyncio.create_task(self._watch())
        keeping = [asyncio.create_task(self._keep_running(row, listener)) for row in range(1, self._processes)]
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
            os.close(self._settings_file)

    def finish(self) -> None:
        """Have the workers finish what is under way, and exit; kill those that do not."""
        self._finishing.set()
        self._send(Finish())
        loop = asyncio.get_running_loop()
        loop.call_later(CLOSE_SECONDS, self._relay.cancel)
        loop.call_later(_FINISH_SECONDS, self._kill)

    def _kill(self) -> None:
        for session in self.sessions.values():
            kill(session.process)

    async def until_idle(self) -> None:
        """Wait until no process has a request under way."""
        requests = self.shared.request_counts.requests
        while requests.total:  # noqa: ASYNC110  # other processes count
            await asyncio.sleep(_PUBLISH_SECONDS)

    def publish(self) -> None:
        """Tell all gates the state of the queue."""
        self.shared.publish(self._core.gate.outlook())

    def replace_keys(self, keys: Sequence[Key]) -> None:
        """Tell all workers the keys."""
        self._keys = keys
        self._send(self._state())

    async def exposition(self) -> bytes:
        """Return the metrics of all processes; those of workers are up to a second old."""
        return await asyncio.to_thread(self._totals.exposition([one.metrics for one in self.sessions.values()]))

    async def _keep_running(self, row: int, listener: socket.socket) -> None:
        failure = await keep_running(
            *("HTTP process", partial(self._start, row, listener), partial(self._run_one, row), self._finishing),
            is_hopeless=lambda were_many: not self._was_listening or (were_many and not self._listening),
        )
        if failure:
            raise WorkerStartError(failure)

    async def _run_one(self, row: int, session: Session) -> str | None:
        """Run a worker until it is gone; return why it never answered connections, None if it did."""
        try:
            await session.channel.lost
        finally:
            del self.sessions[row]
            self._totals.retire(session.metrics)  # at once, or sums would lack its counts meanwhile
            await session.close()
            await end(session.process, _EXIT_SECONDS)
            self.shared.rows[row] = 0
            self.publish()
            level = logging.INFO if self._finishing.is_set() else logging.ERROR
            log.log(level, "worker gone", extra={"pid": session.process.pid, "status": session.process.returncode})
        if session.is_listening:
            return None
        if session.is_stuck:
            return f"an HTTP process was not ready after {_START_SECONDS:.0f} s"
        return f"an HTTP process ended while it started (status {session.process.returncode})"

    @property
    def _listening(self) -> int:
        """Number of workers that answer connections."""
        return sum(session.is_listening for session in self.sessions.values())

    async def _start(self, row: int, listener: socket.socket) -> Session:
        command = [sys.executable, "-P", "-m", _MODULE, "--row", str(row)]
        inherited = {
            "--listener": listener.fileno(),
            "--counts": self._counts_file,
            "--settings": self._settings_file,
        }
        async with started(command, inherited) as child:
            session = self.sessions[row] = Session(self._core, self._relay.take, child)
        session.channel.send(self._state())
        if self._finishing.is_set():
            session.channel.send(Finish())
        log.info("worker started", extra={"pid": child.process.pid})
        return session

    async def _watch(self) -> None:
        """Publish the state of the queue, and kill workers that are silent."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            self.publish()
            await asyncio.sleep(_PUBLISH_SECONDS)
            now = loop.time()
            for session in self.sessions.values():
                limit = _SILENCE_SECONDS if session.is_listening else _START_SECONDS
                if now - last > _WATCH_SECONDS:
                    session.last_message = now  # this process was stopped, and has not read what came meanwhile
                elif not session.is_stuck and now - session.last_message > limit:
                    log.error("worker stuck", extra={"pid": session.process.pid})
                    session.is_stuck = True
                    kill(session.process)
            self._metrics.http_processes.set(self._listening)
            self._was_listening |= self._listening > 0
            last = now

    def _send(self, message: ToWorker) -> None:
        for session in self.sessions.values():
            session.channel.send(message)

    def _models_changed(self) -> None:
        """Tell the workers at once: once `/readyz` says ready, none may refuse a request as loading."""
        self.publish()
        self._send(self._state())

    def _state(self) -> State:
        models = [
            (model.id, model.checkpoint, model.ready, model.is_leaving, model.is_on_demand, model.identifies)
            for model in self._core.catalog
        ]
        return State(models, list(self._keys))
