"""The main process's side of one worker: does what the worker asks for, and takes it back when the worker ends."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from service.demand import Demand, DemandError
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.errors import DispatchError, OverloadedError
from service.dispatch.queue import LocalRecording
from service.dispatch.utterance import Part
from service.http.access import Access
from service.http.errors import RequestError
from service.shared_audio import ArenaView
from service.tracing import Trace, Traceparent, under
from service.workers.errors import failed
from service.workers.protocol import (
    RELAYED,
    Accept,
    AcquireRoom,
    Answered,
    End,
    FromWorker,
    GetOrLoad,
    Granted,
    Grow,
    Identify,
    LanguageProbabilities,
    LimitReached,
    Listening,
    MetricSamples,
    ModelsKnown,
    PartEntry,
    SendSnapshot,
    Snapshot,
    ToWorker,
    Transcribe,
    UseAudio,
    UseKey,
    UseModel,
)
from service.workers.relay import RelayServer

_EXPECTED = (DispatchError, DemandError, RequestError)

log = logging.getLogger("steno.workers")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MainProcess:
    """What workers use of the main process.

    Attributes:
        relay: answers the requests that workers pass on.
    """

    dispatcher: Dispatcher
    demand: Demand
    access: Access
    relay: RelayServer


class Session:
    """Serves one worker.

    Args:
        main: what the worker uses.
        memory: descriptor of the worker's arena.
        send: sends a message to the worker.

    Attributes:
        is_listening: whether the worker answers connections.
        last_message: event-loop time of its last message.
        metrics: its metrics.
    """

    def __init__(self, main: MainProcess, memory: int, send: Callable[[ToWorker], None]) -> None:
        self._main = main
        self._arena = ArenaView(memory)
        self._send = send
        self._loop = asyncio.get_running_loop()
        # By the number of the worker's call:
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._granted: dict[int, Callable[[bool], None]] = {}  # each takes a grant back; True: the request failed
        self._recordings: dict[int, LocalRecording] = {}
        self._models: dict[str, ExitStack] = {}
        self._known_version = 0
        self._changed = asyncio.Event()
        self._is_closed = False
        self.is_listening = False
        self.last_message = self._loop.time()
        self.metrics: MetricSamples = []

    def handle(self, message: FromWorker) -> None:
        """Do what a message asks for."""
        self.last_message = self._loop.time()
        match message:
            case Transcribe() | Identify():
                part = self._run(message.call, self._answer_part(message))
                part.add_done_callback(lambda done: self._reply(message.call, done))
            case End():
                self._end(message)
            case UseModel():
                self._use_model(message)
            case Accept():
                self._accept(message)
            case Grow():
                self._grow(message)
            case AcquireRoom():
                self._acquire_room(message)
            case UseKey() | UseAudio():
                self._use_key(message)
            case GetOrLoad():
                self._run(message.call, self._get_or_load(message))
            case Snapshot():
                self.metrics = message.samples
                self._note_change()
            case ModelsKnown():
                self._known_version = message.version
                self._note_change()
            case Listening():
                self.is_listening = True

    def take_descriptor(self, number: int, descriptor: int | None) -> None:
        """Take what the worker sent, or what this process had no room for: then the other end of it is closed."""
        assert number == RELAYED
        if descriptor is not None:
            self._main.relay.take(descriptor)

    async def until_known(self, version: int) -> None:
        """Wait until the worker knows a version of the models, or is gone."""
        await self._until(lambda: self._known_version >= version)

    async def update_metrics(self) -> None:
        """Ask for the worker's metrics, and wait for them."""
        before = self.metrics
        self._send(SendSnapshot())
        await self._until(lambda: self.metrics is not before)

    async def close(self) -> None:
        """Withdraw all that the worker asked for, and take back all that it holds, after it is gone."""
        self._is_closed = True
        self._note_change()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for take_back in list(self._granted.values()):
            take_back(True)
        for model in self._models.values():
            model.close()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self._is_closed:
            await self._changed.wait()

    def _run(self, call: int, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks[call] = task
        task.add_done_callback(lambda _: self._tasks.pop(call))
        return task

    async def _answer_part(self, message: Transcribe | Identify) -> Answered | LanguageProbabilities:
        traceparent = message.part.traceparent
        parent = None if traceparent is None else Traceparent.parse(traceparent)
        with under(None if parent is None else Trace(parent, 0)):
            if isinstance(message, Transcribe):
                return await self._transcribe(message)
            return await self._identify(message)

    def _reply(self, call: int, part: asyncio.Task[Answered | LanguageProbabilities]) -> None:
        """Reply to a part in any case, also if `End` withdrew it before it began: the worker then frees its samples."""
        error = asyncio.CancelledError() if part.cancelled() else part.exception()
        if error is None:
            self._send(part.result())
            return
        self._send(failed(call, error))
        if not isinstance(error, (asyncio.CancelledError, *_EXPECTED)):
            log.error("utterance failed", exc_info=error)

    async def _transcribe(self, message: Transcribe) -> Answered:
        part = self._part(message.part)
        if message.recording is None:
            dispatcher, seconds = self._main.dispatcher, message.recording_seconds
            with dispatcher.admission.accept(part.lane.model, seconds) as entry:
                answer = await LocalRecording(dispatcher, entry).transcribe(part)
        else:
            answer = await self._recordings[message.recording].transcribe(part)
        return Answered(message.call, answer.transcript, answer.queue_seconds)

    async def _identify(self, message: Identify) -> LanguageProbabilities:
        probabilities = await self._recordings[message.recording].identify(self._part(message.part))
        return LanguageProbabilities(message.call, probabilities)

    def _part(self, entry: PartEntry) -> Part:
        samples = self._arena.read(entry.place)
        deadline = None if entry.seconds_left is None else self._loop.time() + entry.seconds_left
        return Part(samples, entry.share, entry.caller, deadline, entry.lane, entry.prompt)

    def _accept(self, message: Accept) -> None:
        dispatcher, held = self._main.dispatcher, ExitStack()
        try:
            entry = held.enter_context(dispatcher.admission.accept(message.model, message.seconds))
        except OverloadedError as error:
            self._send(failed(message.call, error))
            return
        self._recordings[message.call] = LocalRecording(dispatcher, entry)
        held.callback(self._recordings.pop, message.call)
        self._grant(Granted(message.call), lambda _: held.close())

    def _grow(self, message: Grow) -> None:
        try:
            self._recordings[message.recording].grow_now(message.seconds)
        except OverloadedError as error:
            self._send(failed(message.call, error))
        else:
            self._send(Granted(message.call))

    def _acquire_room(self, message: AcquireRoom) -> None:
        window = self._recordings[message.recording].window
        room = window.acquire(message.samples)
        self._granted[message.call] = lambda _: window.release(room)
        room.add_done_callback(lambda done: done.cancelled() or self._send(Granted(message.call)))

    def _use_key(self, message: UseKey | UseAudio) -> None:
        allowance = self._main.access.allowance(message.name)
        used = (
            allowance.audio(message.seconds)
            if isinstance(message, UseAudio)
            else allowance.enter(self._main.dispatcher.admission.retry_after)
        )
        held = ExitStack()
        try:
            held.enter_context(used)
        except RequestError as error:
            refused = LimitReached(message.call, str(error), error.retry_after, error.should_retry, allowance.levels)
            self._send(refused)
            return

        def take_back(has_failed: bool) -> None:
            error = OverloadedError("", 1)  # for which a key gets its limits back
            held.__exit__(*((OverloadedError, error, None) if has_failed else (None, None, None)))

        self._grant(Granted(message.call, levels=allowance.levels), take_back)

    def _grant(self, granted: Granted, take_back: Callable[[bool], None]) -> None:
        self._granted[granted.call] = take_back
        self._send(granted)

    async def _get_or_load(self, message: GetOrLoad) -> None:
        """Find or load a model, and hold it until `End` cancels this."""
        async with AsyncExitStack() as held:
            try:
                model = await self._main.demand.get_or_load(message.name, held)
            except Exception as error:
                if not isinstance(error, _EXPECTED):
                    log.exception("model could not be loaded")
                self._send(failed(message.call, error))
                return
            self._send(Granted(message.call, None if model is None else model.id))
            await asyncio.Event().wait()

    def _use_model(self, message: UseModel) -> None:
        if not message.is_used:
            if held := self._models.pop(message.model, None):
                held.close()
            return
        held = self._models[message.model] = ExitStack()
        if message.model in self._main.dispatcher.catalog:
            held.enter_context(self._main.dispatcher.catalog[message.model].use())

    def _end(self, message: End) -> None:
        if take_back := self._granted.pop(message.call, None):
            take_back(message.has_failed)
        elif task := self._tasks.get(message.call):
            task.cancel()
