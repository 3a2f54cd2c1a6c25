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
from importlib.metadata import version

import msgspec
import uvloop

from audio.confinement import hide_from_siblings
from service import garbage, logs
from service.channel import Channel
from service.dispatch.admission import Gate
from service.dispatch.catalog import Catalog
from service.http.access import Access, Key
from service.http.allowance import KeyLimits
from service.http.app import create_app
from service.http.connections import Connections
from service.http.opening import SWITCH_INTERVAL, Web, connection_limits, measure_lag, open_front
from service.memory import use_few_heaps
from service.metrics import Metrics
from service.settings import Settings
from service.shared_audio import Arena
from service.threads import in_thread_if_possible
from service.tracing import tracer
from service.workers.descriptors import DescriptorSender
from service.workers.protocol import (
    RELAYED,
    Answered,
    Failed,
    Finish,
    Granted,
    Keys,
    LanguageProbabilities,
    LimitReached,
    Listening,
    Models,
    ModelsKnown,
    SendSnapshot,
    Snapshot,
    Start,
    ToWorker,
    to_worker,
)
from service.workers.relay import WorkerApp
from service.workers.remote import Calls, RemoteCore, RemoteModels, RemoteQueue
from service.workers.shared_counts import SharedConnectionCounts, SharedCounts, SharedOutlook, SharedRequestCounts
from service.workers.totals import snapshot

_SNAPSHOT_SECONDS = 1.0


class _Worker:
    """A worker, from its first messages to its last.

    Args:
        settings: the settings.
        shared: counts of all processes.
        arena: memory for samples.
        calls: what it asks the main process for.
        descriptors: sends descriptors to the main process.
        listener: where it accepts connections.
    """

    def __init__(
        self,
        settings: Settings,
        shared: SharedCounts,
        arena: Arena,
        calls: Calls,
        descriptors: DescriptorSender,
        listener: socket.socket,
    ) -> None:
        self._settings = settings
        self._shared = shared
        self._arena = arena
        self._calls = calls
        self._listener = listener
        self._catalog = Catalog(settings.checkpoints, settings.model_aliases)
        self._access = Access([], settings.key_limits, is_open=settings.is_open)
        self._metrics = Metrics()
        self._descriptors = descriptors
        self._models = RemoteModels(calls)
        self._has_models = asyncio.Event()  # and keys, which come before
        self._finish = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    def handle(self, message: ToWorker) -> None:
        """Handle a message of the main process."""
        match message:
            case Answered() | LanguageProbabilities() | Failed() | Granted() | LimitReached():
                self._calls.handle(message)
            case Models(version=version, entries=entries):
                self._catalog.replace(self._models.of(entries))
                self._has_models.set()
                self._calls.send(ModelsKnown(version))
            case Keys(entries=entries):
                self._access.replace(
                    Key(entry.name, entry.digest, entry.limits and KeyLimits(*entry.limits)) for entry in entries
                )
                self._metrics.expect_keys(self._access.names)
            case SendSnapshot():
                sending = asyncio.create_task(self._send_snapshot())
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)
            case Finish():
                self._finish.set()

    async def run(self) -> None:
        """Answer connections until `Finish`, and those under way to their end."""
        await self._has_models.wait()
        settings = self._settings
        spans = tracer(settings.otlp_endpoint, settings.trace_share, version("steno"))
        counts = SharedRequestCounts(self._shared)
        gate = Gate(settings.admission_limits, SharedOutlook(self._shared), counts)
        core = RemoteCore(gate, self._catalog, not settings.loadable.is_empty, self._calls)
        queue = RemoteQueue(self._calls, self._arena)
        with open_front(settings, core, queue, metrics=self._metrics, access=self._access, tracer=spans) as front:
            app = WorkerApp(create_app(front, None), lambda connection: self._descriptors.send(RELAYED, connection))
            connections = SharedConnectionCounts(self._shared)
            web = Web(settings, app, Connections(connection_limits(settings), self._metrics, connections))
            garbage.take_over()
            aside = [
                asyncio.create_task(work)
                for work in (
                    measure_lag(self._metrics),
                    self._send_snapshots(),
                    garbage.collect(lambda: counts.own_requests, self._collect),
                )
            ]
            serving = asyncio.create_task(web.answer(self._listener))
            finishing = asyncio.create_task(self._finish.wait())
            self._calls.send(Listening())
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
                await self._send_snapshot()

    async def _send_snapshot(self) -> None:
        registry = self._metrics.registry
        # It takes some milliseconds. A worker that sends none is killed.
        self._calls.send(Snapshot(await in_thread_if_possible(lambda: snapshot(registry))))

    async def _send_snapshots(self) -> None:
        while True:
            await self._send_snapshot()
            await asyncio.sleep(_SNAPSHOT_SECONDS)

    def _collect(self) -> None:
        gc.collect()
        self._arena.return_free_memory()


async def _main(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: None)  # the main process says when to end
    begun: asyncio.Future[Start] = loop.create_future()
    early: list[ToWorker] = []
    worker: list[_Worker] = []

    def handle(message: ToWorker) -> None:
        if worker:
            worker[0].handle(message)
        elif isinstance(message, Start):
            begun.set_result(message)
        else:
            early.append(message)

    channel = Channel(to_worker)
    await channel.open(socket.socket(fileno=args.socket), handle)
    channel.lost.add_done_callback(_exit)
    start = await begun
    settings = Settings(**msgspec.json.decode(start.settings))
    shared = SharedCounts(args.counts, settings.http_processes + 1, start.row)
    descriptors = DescriptorSender(socket.socket(fileno=args.descriptors))
    listener = socket.socket(fileno=args.listener)
    ours = _Worker(settings, shared, Arena(args.memory), Calls(channel.send), descriptors, listener)
    for message in early:
        ours.handle(message)
    worker.append(ours)
    await ours.run()
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
    parser.add_argument("--log-format", choices=("json", "text"), required=True)
    parser.add_argument("--log-level", required=True)
    args = parser.parse_args()
    logs.configure(args.log_format, args.log_level)
    use_few_heaps()
    sys.setswitchinterval(SWITCH_INTERVAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(_main(args))


if __name__ == "__main__":
    main()
