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
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import msgspec
import uvloop

from audio.confinement import hide_from_siblings
from service import garbage, logs
from service.channel import Channel
from service.dispatch.admission import Gate
from service.dispatch.catalog import Catalog, ServedModel
from service.http.app import create_app
from service.http.keys.access import Access
from service.http.opening import SWITCH_INTERVAL, Web, connection_limits, measure_lag, open_front
from service.http.wire.connections import Connections
from service.memory import use_few_heaps
from service.metrics import Metrics
from service.settings import Settings
from service.shared_audio import Arena
from service.threads import in_thread_if_possible
from service.tracing import tracer
from service.workers.descriptors import send_descriptor
from service.workers.protocol import (
    RELAYED,
    Answered,
    Ended,
    Finish,
    Granted,
    Snapshot,
    Start,
    State,
    ToWorker,
    to_worker,
)
from service.workers.relay import WorkerApp
from service.workers.remote import RemoteCore
from service.workers.shared_counts import SharedConnectionCounts, SharedCounts, SharedRequestCounts
from service.workers.totals import snapshot

_SNAPSHOT_SECONDS = 1.0


class _Worker:
    """A worker, from its first message to its last.

    Args:
        settings: the settings.
        shared: counts of all processes.
        channel: the channel to the main process.
        send_descriptor: sends it a descriptor, with a number.
        arena: memory for samples, which it maps.
    """

    def __init__(
        self,
        settings: Settings,
        shared: SharedCounts,
        channel: Channel[ToWorker],
        send_descriptor: Callable[[int, int], None],
        arena: Arena,
    ) -> None:
        self._settings = settings
        self._shared = shared
        self._channel = channel
        self._send_descriptor = send_descriptor
        self._arena = arena
        self._access = Access([], settings.key_limits, is_open=settings.is_open)
        self._metrics = Metrics()
        self._counts = SharedRequestCounts(self._shared)
        self._core = RemoteCore(
            Gate(settings.admission_limits, self._shared.outlook, self._counts),
            Catalog(settings.checkpoints, settings.model_aliases),
            loads_on_demand=not settings.loadable.is_empty,
            send=channel.send,
            send_descriptor=send_descriptor,
            arena=arena,
        )
        self._has_state = asyncio.Event()
        self._finish = asyncio.Event()

    def handle(self, message: ToWorker) -> None:
        """Handle a message of the main process."""
        match message:
            case Granted() | Answered() | Ended():
                self._core.handle(message)
            case State(models=models, keys=keys):
                self._core.catalog.replace(ServedModel(**msgspec.structs.asdict(model)) for model in models)
                self._access.replace(keys)
                self._metrics.expect_keys(self._access.names)
                self._has_state.set()
            case Finish():
                self._finish.set()

    async def run(self, listener: socket.socket) -> None:
        """Answer connections until `Finish`, and those under way to their end."""
        await self._has_state.wait()
        settings, metrics = self._settings, self._metrics
        spans = tracer(settings.otlp_endpoint, version("steno"))
        with open_front(settings, self._core, metrics=metrics, access=self._access, tracer=spans) as front:
            app = WorkerApp(create_app(front), partial(self._send_descriptor, RELAYED))
            connections = SharedConnectionCounts(self._shared)
            web = Web(settings, app, Connections(connection_limits(settings), metrics, connections))
            garbage.take_over()
            serving = asyncio.create_task(web.answer(listener))
            aside = [
                asyncio.create_task(work)
                for work in (
                    measure_lag(metrics),
                    self._send_snapshots(),
                    garbage.collect(lambda: self._counts.own_requests, self._collect),
                )
            ]
            finishing = asyncio.create_task(self._finish.wait())
            try:
                await asyncio.wait({serving, finishing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                front.decode_pool.close()
                web.finish()
                await serving
                finishing.cancel()
                for task in aside:
                    task.cancel()
                if front.outbound is not None:
                    await front.outbound.close()
                await asyncio.to_thread(spans.close)
                await self.send_snapshot()

    async def send_snapshot(self) -> None:
        """Send the metrics of now."""
        registry = self._metrics.registry
        # It takes some milliseconds. A worker that sends none is killed.
        self._channel.send(Snapshot(await in_thread_if_possible(lambda: snapshot(registry))))

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
    worker: asyncio.Future[_Worker] = loop.create_future()
    channel = Channel(to_worker)

    def handle(message: ToWorker) -> None:
        if isinstance(message, Start):
            settings = Settings(**msgspec.json.decode(message.settings))
            logs.configure(logs.resolve_format(settings.log_format), settings.log_level)
            shared = SharedCounts(args.counts, settings.http_processes + 1, message.row)
            send = partial(send_descriptor, socket.socket(fileno=args.descriptors))
            worker.set_result(_Worker(settings, shared, channel, send, Arena(args.memory)))
        else:
            worker.result().handle(message)

    await channel.open(socket.socket(fileno=args.socket), handle)
    channel.lost.add_done_callback(_exit)
    await (await worker).run(socket.socket(fileno=args.listener))
    channel.lost.remove_done_callback(_exit)
    channel.close()
    await channel.lost


def _exit(_: "asyncio.Future[None]") -> None:
    """Exit at once, because the main process is gone."""
    os._exit(1)


def main() -> None:
    """Parse the command line of a worker, and run it."""
    hide_from_siblings()
    parser = argparse.ArgumentParser()
    for name in ("socket", "descriptors", "listener", "memory", "counts"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    use_few_heaps()
    sys.setswitchinterval(SWITCH_INTERVAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(_main(args))


if __name__ == "__main__":
    main()
