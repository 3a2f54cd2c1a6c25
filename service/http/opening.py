"""Opens what a process needs to answer HTTP: its front, with threads and child processes, and uvicorn."""

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from audio.child_process import Confinement
from audio.pool import DecodePool
from audio.segment.voice_activity import SpeechDetector
from models.device.resources import memory_bytes, processors
from service.http.core import Core
from service.http.front import Front
from service.http.keys.access import Access
from service.http.transcription.intake import Intake
from service.http.wire.connection import Guard, Guarded
from service.http.wire.connections import Connections
from service.metrics import Metrics
from service.outbound import Outbound
from service.phrase_file import PhraseFile
from service.priorities import give_way
from service.settings import Settings
from service.tracing import Tracer

log = logging.getLogger("steno")

# Python's switch interval in seconds: how long a thread waits for the interpreter lock while another one runs. With
# Python's 0.005, a decoding thread, which needs the lock after each block, waits longer than it decodes
# (docs/performance.md at 4f03a9e).
SWITCH_INTERVAL = 0.0005
# After the drain, answers have so long to be written, and as long again once uvicorn has cancelled their requests.
CLOSE_SECONDS = 5
_LAG_SECONDS = 0.25
_NEVER_SECONDS = 86_400
_SPARE_DECODE_THREADS = 4
_SPARE_SECONDS = 5.0  # after the start, when engines do not need the cores most


@contextlib.asynccontextmanager
async def open_front(
    settings: Settings, core: Core, *, metrics: Metrics, access: Access, tracer: Tracer
) -> AsyncIterator[Front]:
    """Open the front of a process; the threads of all `settings.http_processes` share the cores.

    At the end, remaining spans are sent.
    """
    cores = math.ceil(processors() / settings.http_processes)
    threads = cores + _SPARE_DECODE_THREADS
    confinement = Confinement()
    with (
        # More than cores, so that short uploads pass long ones.
        ThreadPoolExecutor(threads, "decode", give_way) as decode_threads,
        ThreadPoolExecutor(cores, "cut", give_way) as cut_threads,
        DecodePool(
            confinement,
            most=confinement.children(threads, memory_bytes() / settings.http_processes),
            keeps_spare=True,
            in_thread=give_way,
            on_loss=metrics.decode_crashes.inc,
            on_start=partial(_report, set()),
        ) as decode_pool,
        contextlib.ExitStack() as if_it_ends,
    ):
        preparing = asyncio.get_running_loop().call_later(_SPARE_SECONDS, decode_pool.prepare)
        if_it_ends.callback(preparing.cancel)
        measuring = asyncio.create_task(_measure_lag(metrics))
        if_it_ends.callback(measuring.cancel)
        outbound = Outbound(settings.url_hosts) if settings.url_hosts else None
        try:
            yield Front(
                settings=settings,
                core=core,
                metrics=metrics,
                decode_threads=decode_threads,
                cut_threads=cut_threads,
                detector=SpeechDetector(),
                decode_pool=decode_pool,
                intake=Intake(cores),
                started=int(time.time()),
                access=access,
                phrases=PhraseFile(settings.phrases) if settings.phrases else None,
                outbound=outbound,
                tracer=tracer,
            )
        finally:
            if outbound is not None:
                await outbound.aclose()
            await asyncio.to_thread(tracer.close)


def _report(known: set[str], unconfined: tuple[str, ...]) -> None:
    """Say in the log, once, which layers of a decoder's confinement do not hold here."""
    if not known.issuperset(unconfined):
        known.update(unconfined)
        log.warning("decoding processes are not wholly confined", extra={"missing": ", ".join(unconfined)})


class Web(uvicorn.Server):
    """uvicorn without its signal handlers, which would close the listener: draining needs it open."""

    def __init__(self, settings: Settings, app: ASGIApp, connections: Connections) -> None:
        config = uvicorn.Config(
            Guarded(app),
            http=partial(Guard, open_ones=connections, hosts=settings.known_hosts),  # type: ignore[arg-type]
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            # For every answer, so that no browser reads one as another type than it says.
            headers=[("x-content-type-options", "nosniff")],
            timeout_keep_alive=_NEVER_SECONDS,  # the guard's time is shorter
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        super().__init__(config)

    async def answer(self, listener: socket.socket) -> None:
        """Answer connections until `finish`, then for a limited time those under way."""
        await self.serve(sockets=[listener])
        if self.server_state.tasks:  # uvicorn has cancelled them; they still answer with an error
            await asyncio.wait(self.server_state.tasks, timeout=CLOSE_SECONDS)

    def finish(self) -> None:
        """Take no more connections, and close those that are idle."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield


async def _measure_lag(metrics: Metrics) -> None:
    """Measure the lag of the event loop, on which nothing may take over a millisecond."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_SECONDS
        await asyncio.sleep(_LAG_SECONDS)
        metrics.event_loop_lag.observe(max(0.0, loop.time() - due))
