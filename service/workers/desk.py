"""The main process's side of one worker: does what the worker asks for, and takes all of it back when it ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass

from starlette.types import ASGIApp

from service.demand import Demand, DemandError
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.errors import DispatchError, OverloadedError
from service.dispatch.queue import LocalRecording, Part
from service.engine.protocol import Item
from service.engine.staging import StagingView
from service.http.access import Access
from service.http.errors import RequestError
from service.tracing import Trace, Traceparent, under
from service.workers.errors import failed
from service.workers.forwarding import Forwarded
from service.workers.protocol import (
    Accept,
    Answered,
    Ask,
    Body,
    Bring,
    End,
    Forward,
    FromWorker,
    Gone,
    Granted,
    Held,
    Identify,
    LanguageProbabilities,
    PartEntry,
    Seen,
    Snapshot,
    Taken,
    Tell,
    ToWorker,
    Transcribe,
    Up,
    UseAudio,
    UseKey,
)

_EXPECTED = (DispatchError, DemandError, RequestError)

log = logging.getLogger("steno.workers")

Samples = list[tuple[str, str, list[tuple[str, str]], float]]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the main process that workers use.

    Attributes:
        app: answers the requests that workers pass on.
    """

    dispatcher: Dispatcher
    demand: Demand
    access: Access
    app: ASGIApp


class Desk:
    """Serves one worker.

    Args:
        parts: what it uses.
        memory: descriptor of the worker's arena.
        send: sends a message to the worker.

    Attributes:
        is_up: whether the worker answers connections.
        last_message: event-loop time of its last message.
        samples: its metrics.
    """

    def __init__(self, parts: Parts, memory: int, send: Callable[[ToWorker], None]) -> None:
        self._parts = parts
        self._samples = StagingView(memory)
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._granted: dict[int, Callable[[bool], None]] = {}
        self._places: dict[int, LocalRecording] = {}
        self._forwarded: dict[int, Forwarded] = {}
        self._models: dict[str, ExitStack] = {}
        self._seen = 0
        self._changed = asyncio.Event()
        self._is_closed = False
        self.is_up = False
        self.last_message = self._loop.time()
        self.samples: Samples = []

    def take(self, message: FromWorker) -> None:
        """Do what a message asks for."""
        self.last_message = self._loop.time()
        match message:
            case Transcribe() | Identify():
                self._run(message.call, self._answer_part(message))
            case End():
                self._end(message)
            case Held():
                self._hold(message)
            case Accept():
                self._accept(message)
            case Ask():
                self._ask(message)
            case UseKey() | UseAudio():
                self._use(message)
            case Bring():
                self._run(message.call, self._bring(message))
            case Forward():
                forwarded = self._forwarded[message.call] = Forwarded(message, self._send)
                self._run(message.call, self._answer(message.call, forwarded))
            case Body() | Gone() | Taken():
                if known := self._forwarded.get(message.call):
                    known.take(message)
            case Snapshot():
                self.samples = message.samples
                self._change()
            case Seen():
                self._seen = message.version
                self._change()
            case Up():
                self.is_up = True
                self._change()

    async def until_seen(self, version: int) -> None:
        """Wait until the worker knows a version of the models, or is gone."""
        await self._until(lambda: self._seen >= version)

    async def until_up(self) -> None:
        """Wait until the worker answers connections, or is gone."""
        await self._until(lambda: self.is_up)

    async def tell(self) -> None:
        """Have the worker's metrics sent, and wait for them."""
        before = self.samples
        self._send(Tell())
        await self._until(lambda: self.samples is not before)

    async def close(self) -> None:
        """Withdraw all that the worker asked for, and take back all that it holds, because it is gone."""
        self._is_closed = True
        self._change()
        for forwarded in list(self._forwarded.values()):
            forwarded.take(Gone(0))
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for give_back in list(self._granted.values()):
            give_back(True)
        for model in self._models.values():
            model.close()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self._is_closed:
            await self._changed.wait()

    def _run(self, call: int, work: "Awaitable[None]") -> None:
        task = self._running[call] = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._running.pop(call))

    async def _answer_part(self, asked: Transcribe | Identify) -> None:
        traceparent = asked.part.traceparent
        parent = None if traceparent is None else Traceparent.parse(traceparent)
        try:
            with under(None if parent is None else Trace(parent, 0)):
                reply = await (self._transcribe(asked) if isinstance(asked, Transcribe) else self._identify(asked))
        except BaseException as error:
            self._send(failed(asked.call, error))
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, _EXPECTED):
                log.exception("utterance failed")
        else:
            self._send(reply)

    async def _transcribe(self, asked: Transcribe) -> Answered:
        dispatcher = self._parts.dispatcher
        part = self._part(asked.part)
        if asked.place is None:
            seconds = asked.recording_seconds
            with dispatcher.admission.accept(part.lane.model, seconds) as accepted:
                answer = await LocalRecording(dispatcher, accepted, seconds).transcribe(part)
        else:
            answer = await self._places[asked.place].transcribe(part)
        return Answered(asked.call, answer.transcript, answer.queue_seconds)

    async def _identify(self, asked: Identify) -> LanguageProbabilities:
        probabilities = await self._places[asked.place].identify(self._part(asked.part))
        return LanguageProbabilities(asked.call, probabilities)

    def _part(self, entry: PartEntry) -> Part:
        samples = self._samples.read(Item(entry.offset, entry.samples))
        deadline = None if entry.seconds_left is None else self._loop.time() + entry.seconds_left
        return Part(samples, entry.share, entry.caller, deadline, entry.lane, entry.prompt)

    def _accept(self, asked: Accept) -> None:
        dispatcher, held = self._parts.dispatcher, ExitStack()
        try:
            accepted = held.enter_context(dispatcher.admission.accept(asked.model, asked.seconds))
        except OverloadedError as error:
            self._send(failed(asked.call, error))
            return
        self._places[asked.call] = LocalRecording(dispatcher, accepted, asked.seconds)
        held.callback(self._places.pop, asked.call)
        self._grant(Granted(asked.call), lambda _: held.close())

    def _ask(self, asked: Ask) -> None:
        window = self._places[asked.place].window
        place = window.acquire(asked.samples)
        self._granted[asked.call] = lambda _: window.release(place)
        place.add_done_callback(lambda done: done.cancelled() or self._send(Granted(asked.call)))

    def _use(self, asked: UseKey | UseAudio) -> None:
        allowance = self._parts.access.allowance(asked.name)
        used = (
            allowance.audio(asked.seconds)
            if isinstance(asked, UseAudio)
            else allowance.enter(self._parts.dispatcher.admission.retry_after)
        )
        held = ExitStack()
        try:
            held.enter_context(used)
        except RequestError as error:
            self._send(failed(asked.call, error))
            return

        def give_back(has_failed: bool) -> None:
            error = OverloadedError("", 1)  # for it, a key gets its limits back
            held.__exit__(*((OverloadedError, error, None) if has_failed else (None, None, None)))

        self._grant(Granted(asked.call, levels=allowance.levels), give_back)

    def _grant(self, granted: Granted, give_back: Callable[[bool], None]) -> None:
        self._granted[granted.call] = give_back
        self._send(granted)

    async def _bring(self, asked: Bring) -> None:
        """Load a model, and hold it until this is cancelled, by `End`."""
        async with AsyncExitStack() as held:
            try:
                model = await self._parts.demand.get_or_load(asked.name, held)
            except Exception as error:
                if not isinstance(error, _EXPECTED):
                    log.exception("model could not be brought")
                self._send(failed(asked.call, error))
                return
            self._send(Granted(asked.call, None if model is None else model.id))
            await asyncio.Event().wait()

    async def _answer(self, call: int, forwarded: Forwarded) -> None:
        try:
            await forwarded.run(self._parts.app)
        finally:
            del self._forwarded[call]

    def _hold(self, message: Held) -> None:
        if not message.is_held:
            if held := self._models.pop(message.model, None):
                held.close()
            return
        held = self._models[message.model] = ExitStack()
        if message.model in self._parts.dispatcher.catalog:
            held.enter_context(self._parts.dispatcher.catalog[message.model].use())

    def _end(self, message: End) -> None:
        if give_back := self._granted.pop(message.call, None):
            give_back(message.has_failed)
        elif running := self._running.get(message.call):
            running.cancel()
