"""A worker: HTTP in a process of its own, before the dispatcher of the main process.

It ignores SIGTERM and SIGINT, and exits when its socket closes, so it does not outlive the main process.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from functools import partial
from importlib.metadata import version

import msgspec
import uvloop

from audio.confinement import hide_from_siblings
from service import garbage, logs
from service.channel import Channel
from service.dispatch.admission import Gate
from service.dispatch.catalog import Catalog, ServedModel
from service.dispatch.counts import SharedMemory
from service.http.app import create_app
from service.http.keys.access import Access
from service.http.opening import SWITCH_INTERVAL, Web, open_front
from service.http.wire.connections import Connections
from service.memory import use_few_heaps
from service.metrics import Metrics
from service.settings import Settings
from service.shared_audio import Arena
from service.threads import in_thread_if_possible
from service.tracing import tracer
from service.workers import protocol
from service.workers.relay import WorkerApp
from service.workers.remote import RemoteCore
from service.workers.totals import snapshot

_SNAPSHOT_SECONDS = 1.0


class Worker:
    """A worker, from its first message to its last.

    Its counts are in a row of the shared memory ``counts``, and samples in ``memory``, which the main process maps;
    both are descriptors.
    """

    def __init__(self, settings: Settings, *, row: int, counts: int, memory: int, connection: socket.socket) -> None:
        self._settings = settings
        self._shared = SharedMemory(counts, settings.http_processes + 1, row)
        self.channel = Channel(connection, protocol.to_worker, self._handle)
        self._arena = Arena(memory)
        self._access = Access([], settings.key_limits, is_open=settings.is_open)
        self._metrics = Metrics()
        self._core = RemoteCore(
            Gate(settings.admission_limits, self._shared.outlook, self._shared.request_counts),
            Catalog(settings.checkpoints, settings.model_aliases),
            loads_on_demand=not settings.loadable.is_empty,
            send=self.channel.send,
            arena=self._arena,
        )
        self._has_state = asyncio.Event()
        self._finish = asyncio.Event()

    def _handle(self, message: protocol.ToWorker) -> None:
        match message:
            case protocol.Granted() | protocol.Answered() | protocol.Ended():
                self._core.handle(message)
            case protocol.State(models=models, keys=keys):
                self._core.catalog.replace(ServedModel(*model) for model in models)
                self._access.replace(keys)
                self._metrics.expect_keys(self._access.names)
                self._has_state.set()
            case protocol.Finish():
                self._finish.set()

    async def run(self, listener: socket.socket) -> None:
        """Answer connections until `Finish`, and those under way to their end."""
        await self._has_state.wait()
        settings, metrics = self._settings, self._metrics
        spans = tracer(settings.otlp_endpoint, version("steno"))
        async with open_front(settings, self._core, metrics=metrics, access=self._access, tracer=spans) as front:
            app = WorkerApp(create_app(front), partial(self.channel.send, protocol.Relay()))
            counts = self._shared.counts("connections")
            web = Web(settings, app, Connections(settings, metrics, counts))

            async def finish() -> None:
                await self._finish.wait()
                front.decode_pool.close()
                web.finish()

            garbage.take_over()
            collecting = garbage.collect(lambda: self._core.gate.counts.requests.own, self._collect)
            beside = [*map(asyncio.create_task, (finish(), self._send_snapshots(), collecting))]
            try:
                await web.answer(listener)
            finally:
                for task in beside:
                    task.cancel()
                await self.send_snapshot()

    async def send_snapshot(self) -> None:
        """Send the metrics of now."""
        registry = self._metrics.registry
        # It takes some milliseconds. A worker that sends none is killed.
        self.channel.send(protocol.Snapshot(await in_thread_if_possible(lambda: snapshot(registry))))

    async def _send_snapshots(self) -> None:
        while True:
            await self.send_snapshot()
            await asyncio.sleep(_SNAPSHOT_SECONDS)

    def _collect(self) -> None:
        gc.collect()
        self._arena.return_free_memory()


async def _main(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: None)  # the main process says when to end
    settings = Settings(**msgspec.json.decode(os.pread(args.settings, os.fstat(args.settings).st_size, 0)))
    logs.configure(logs.resolve_format(settings.log_format), settings.log_level)
    connection = socket.socket(fileno=args.socket)
    worker = Worker(settings, row=args.row, counts=args.counts, memory=args.memory, connection=connection)
    worker.channel.lost.add_done_callback(_exit)
    await worker.run(socket.socket(fileno=args.listener))
    worker.channel.lost.remove_done_callback(_exit)
    worker.channel.close()
    await worker.channel.lost


def _exit(_: "asyncio.Future[None]") -> None:
    """Exit at once, because the main process is gone."""
    os._exit(1)


def main() -> None:
    """Parse the command line of a worker, and run it."""
    hide_from_siblings()
    parser = argparse.ArgumentParser()
    for name in ("socket", "listener", "memory", "counts", "settings", "row"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    use_few_heaps()
    sys.setswitchinterval(SWITCH_INTERVAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(_main(args))


if __name__ == "__main__":
    main()
