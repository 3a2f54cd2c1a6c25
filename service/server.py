"""The front process from start to end: start, serve, drain, stop."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import msgspec
import uvloop

from audio.confinement import hide_from_siblings
from audio.segment.voice_activity import SpeechDetector
from models.device.resources import memory_bytes, processors
from service import garbage
from service.demand import Demand
from service.dispatch.catalog import Catalog
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.errors import EngineLostError, stopped
from service.dispatch.recordings import Recordings
from service.dispatch.rescue import Rescue
from service.engine.devices import count_gpus, engine_devices
from service.engine.fleet import Fleet
from service.engine.protocol import Load
from service.engine.supervisor import SPEECH_ENGINE, Supervisor
from service.http.app import create_app
from service.http.core import LocalCore
from service.http.keys.access import Access
from service.http.keys.key_file import KeyFile
from service.http.opening import SWITCH_INTERVAL, Web, open_front
from service.http.routes.jobs import transcribe_job
from service.http.wire.connections import Connections
from service.jobs.jobs import Jobs
from service.jobs.store import JobStore
from service.keys import Key
from service.logs import resolve_format
from service.memory import use_few_heaps
from service.metrics import Metrics
from service.outbound import Outbound
from service.phrase_file import PhraseFile
from service.readiness import Readiness
from service.residency import Residency
from service.settings import Settings, SettingsError
from service.tracing import tracer
from service.workers.relay import RelayServer
from service.workers.supervisor import WorkerSupervisor
from transcripts.phrases import PhraseError

log = logging.getLogger("steno")


class Server:
    """One service: a listening socket, the application, a dispatcher and its engines.

    Raises:
        SettingsError: if the file of keys or of phrases cannot be read, or is wrong.
        TracingError: if traces are turned on, but OpenTelemetry is not installed.
        OSError: if the folder of jobs cannot be used, or the address cannot be listened on.
    """

    def __init__(self, settings: Settings, engine_module: str = SPEECH_ENGINE) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.metrics.describe_build(version("steno"))
        self.metrics.expect_models(settings.checkpoints)
        keys = [Key.parse(entry) for entry in settings.api_keys]
        self._key_file = KeyFile(settings.api_keys_file, keys, settings.key_limits) if settings.api_keys_file else None
        try:
            all_keys = self._key_file.read() if self._key_file else keys
            self._access = Access(all_keys, settings.key_limits, is_open=settings.is_open)
        except ValueError as error:
            raise SettingsError(f"STENO_API_KEYS_FILE (--api-keys-file): {error}") from None
        try:
            if settings.phrases:  # a wrong file is an error now; each process that answers HTTP reads its own
                PhraseFile(settings.phrases)
        except PhraseError as error:
            raise SettingsError(f"STENO_PHRASES (--phrases): {error}") from None
        self.metrics.expect_keys(self._access.names)
        # None if this process answers alone.
        self.workers = WorkerSupervisor(settings, self.metrics, all_keys) if settings.http_processes > 1 else None
        self._tracer = tracer(settings.otlp_endpoint, version("steno"))
        self.dispatcher = Dispatcher(
            Catalog(settings.checkpoints, settings.model_aliases, settings.identifier),
            edges=settings.edges,
            limits=settings.admission_limits,
            metrics=self.metrics,
            counts=self.workers.shared.request_counts if self.workers else None,
        )
        template = Load(
            model="",
            checkpoint="",
            device="",  # the fleet fills in device and threads
            dtype=settings.dtype,
            bucket_seconds=settings.edges,
            batch_seconds=settings.batch_seconds,
            threads=None,
            attention_context=settings.local_attention,
            beam=settings.beam,
            language_model=settings.language_model,
            aligner=settings.aligner,
            fast_paths=settings.fast_paths,
        )
        loads = [
            msgspec.structs.replace(template, model=model, checkpoint=checkpoint)
            for model, checkpoint in settings.checkpoints.items()
        ]
        if settings.identifier is not None:
            model, checkpoint = settings.identifier
            load = msgspec.structs.replace(template, model=model, checkpoint=checkpoint, identifies=True)
            loads.append(msgspec.structs.replace(load, bucket_seconds=settings.identifier_edges))
        self.fleet = Fleet(
            engine_devices(
                settings.device,
                settings.threads,
                processors(),
                count_gpus() if settings.device in ("auto", "cuda") else 0,
                [load.checkpoint for load in loads],
                memory_bytes(),
            ),
            loads,
            lambda name, loads: Supervisor(
                loads,
                self.dispatcher,
                device=name,
                longest_seconds=settings.edges[-1],
                timeout=settings.engine_timeout_seconds,
                module=engine_module,
                engine_arguments=(
                    *("--log-format", resolve_format(settings.log_format)),
                    *("--log-level", settings.log_level),
                ),
            ),
        )
        self.residency = Residency(self.dispatcher, self.fleet, template, settings.max_weight_bytes)
        self._demand = Demand(self.residency, self.dispatcher.catalog, settings.loadable, settings.model_ttl)
        # Before the socket, which would stay open if the folder cannot be used.
        self._job_store = None
        if settings.jobs_folder:
            self._job_store = JobStore(
                settings.jobs_folder, max_jobs=settings.max_jobs, max_jobs_of_caller=settings.max_jobs_per_key
            )
        self._readiness = Readiness(self.dispatcher)
        self._gives_notice = True
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
        self.port: int = self._listener.getsockname()[1]

    def stop(self, notice: bool = True) -> None:
        """Begin to drain, after ``notice`` to a balancer if it is to have that; a second call cuts the drain short."""
        if self._stop.is_set():
            self._hurry.set()
        else:
            self._gives_notice = notice
            self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`, then finish what was accepted.

        Raises:
            EngineStartError: if no engine can be started.
        """
        settings = self._settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        log.info("listening", extra={"url": f"http://{host}:{self.port}", "pid": os.getpid()})
        async with contextlib.AsyncExitStack() as opened:
            # They do not give way: on a busy machine, one would keep the interpreter's lock from the event loop.
            threads = opened.enter_context(ThreadPoolExecutor(processors(), "part"))
            rescue = Rescue(SpeechDetector(), threads) if settings.rescue else None
            recordings = Recordings(self.dispatcher, threads, rescue)
            jobs = None
            if self._job_store:
                jobs = Jobs(
                    self._job_store,
                    transcribe=lambda job, file: transcribe_job(front, job, file, lambda: self.dispatcher.is_abandoned),
                    is_ready=lambda: self.dispatcher.is_ready,
                    retention_seconds=settings.job_retention_seconds,
                    outbound=Outbound(settings.webhook_hosts),
                    metrics=self.metrics,
                )
            core = LocalCore(
                *(self.dispatcher, recordings, self._demand, self._readiness),
                access=self._access,
                jobs=jobs,
                exposition=self.workers.exposition if self.workers else self.metrics.exposition,
            )
            front = await opened.enter_async_context(
                open_front(settings, core, metrics=self.metrics, access=self._access, tracer=self._tracer)
            )
            app = create_app(front)
            http: WorkerSupervisor | Web
            if self.workers:
                http = self.workers
                serving = asyncio.create_task(self.workers.run(self._listener, core, RelayServer(app)))
            else:
                http = Web(settings, app, Connections(settings, self.metrics))
                serving = asyncio.create_task(http.answer(self._listener))
            supervising = asyncio.create_task(self.fleet.run())
            beside = [asyncio.create_task(self._demand.sweep())]
            if self._key_file:
                changed = self.workers.replace_keys if self.workers else lambda _: None
                beside.append(asyncio.create_task(self._key_file.watch(self._access, self.metrics, changed)))
            stopping = asyncio.create_task(self._stop.wait())
            working = asyncio.create_task(jobs.run()) if jobs else None
            try:
                await asyncio.wait({serving, supervising, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if working:  # jobs are on disk, and continue after the restart
                    working.cancel()
                if supervising.done():
                    self.dispatcher.abandon(lambda: EngineLostError("No engine can be started."))
                else:
                    await self._drain(supervising)
                # A file that is still decoded is a job's, or was given up, and may take minutes.
                front.decode_pool.close()
                if working:
                    await asyncio.wait({working})
            finally:
                for task in (*beside, stopping):
                    task.cancel()
                http.finish()
                await self.fleet.stop()
                await asyncio.wait({serving})
                if jobs:
                    await jobs.close()
            await serving
            await supervising

    def collect(self) -> None:
        """Collect garbage, and return memory that is shared with engines and now free."""
        gc.collect()
        for engine in self.fleet.engines:
            engine.arena.return_free_memory()

    async def _drain(self, supervising: "asyncio.Task[None]") -> None:
        """Answer accepted requests; give up after `drain_seconds`, at a second signal, or without engines.

        A balancer gets the time to notice before anything is refused, unless somebody waits for the end.
        """
        seconds = self._settings.drain_seconds
        seconds -= await self._readiness.leave(self._hurry, seconds if self._gives_notice else 0.0)
        self.dispatcher.drain()
        if self.workers:
            self.workers.publish()
        log.info("draining", extra={"requests": self.dispatcher.admission.requests})
        idle = asyncio.create_task((self.workers or self.dispatcher.admission).until_idle())
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({idle, hurried, supervising}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        hurried.cancel()
        if cut_off := self.dispatcher.admission.requests:
            log.warning("cut off", extra={"requests": cut_off})
            self.dispatcher.abandon(stopped)


_LEAST_FILES = 64  # of the loop, an engine, a decoder and some connections


def _raise_file_limit() -> None:
    """Raise the limit on open files to the system's highest: each connection is one, and the usual limit is 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):  # macOS reports no limit, but has one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if 0 <= most < _LEAST_FILES:
        raise OSError(f"at most {most} files may be open (ulimit -n); the service needs {_LEAST_FILES}")


def run(settings: Settings, engine_module: str = SPEECH_ENGINE) -> None:
    """Serve until SIGTERM or SIGINT, with engines of a Python module.

    Raises:
        SettingsError, TracingError, OSError: as `Server`.
        EngineStartError: if no engine can be started.
        WorkerStartError: if no HTTP process can be started.
    """
    hide_from_siblings()
    _raise_file_limit()
    use_few_heaps()

    async def main() -> None:
        server = Server(settings, engine_module)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, server.stop)
        loop.add_signal_handler(signal.SIGINT, server.stop, False)  # Ctrl-C, by somebody who waits for the end
        garbage.take_over()
        collecting = asyncio.create_task(garbage.collect(lambda: server.dispatcher.admission.requests, server.collect))
        try:
            await server.run()
        finally:
            collecting.cancel()

    sys.setswitchinterval(SWITCH_INTERVAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
