"""What a worker's HTTP needs of the main process: the models, the limits of keys, and the queue."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from models.spoken_language import Probabilities
from service.dispatch.admission import Gate
from service.dispatch.catalog import Catalog, ServedModel
from service.dispatch.dispatcher import Answer
from service.dispatch.queue import AcceptedRecording
from service.dispatch.utterance import Part
from service.http.allowance import Allowance, KeyLimits
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response
from service.shared_audio import Arena
from service.tracing import current
from service.workers.errors import error_of
from service.workers.protocol import (
    Accept,
    AcquireRoom,
    Answered,
    End,
    Failed,
    FromWorker,
    GetOrLoad,
    Granted,
    Grow,
    Identify,
    LanguageProbabilities,
    LimitReached,
    ModelEntry,
    PartEntry,
    Transcribe,
    UseAudio,
    UseKey,
    UseModel,
)

_NO_LIMITS = KeyLimits()

Reply = Granted | LimitReached | Answered | LanguageProbabilities


class Calls:
    """What the worker asked for, and the replies.

    Args:
        send: sends a message to the main process.
    """

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        self.send = send
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Reply]] = {}

    def number(self) -> int:
        """Return a new number."""
        self._last += 1
        return self._last

    def begin(
        self, message: Accept | Grow | AcquireRoom | GetOrLoad | UseKey | UseAudio | Transcribe | Identify
    ) -> asyncio.Future[Reply]:
        """Send a message, and return the future of its reply."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[message.call] = reply
        self.send(message)
        return reply

    def end(self, call: int, *, has_failed: bool = False) -> None:
        """Withdraw, or give back, what was asked for; its reply is ignored."""
        self._waiting.pop(call, None)
        self.send(End(call, has_failed))

    def handle(self, message: Reply | Failed) -> None:
        """Handle a reply."""
        reply = self._waiting.pop(message.call, None)
        if reply is None or reply.done():
            return
        if isinstance(message, Failed):
            reply.set_exception(error_of(message))
        else:
            reply.set_result(message)


class RemoteModel(ServedModel):
    """A model of the main process, where all requests of this process count as one user."""

    calls: Calls

    @contextmanager
    def use(self) -> Iterator[None]:
        """Hold the model for a request."""
        if not self.users:
            self.calls.send(UseModel(self.id, is_used=True))
        try:
            with super().use():
                yield
        finally:
            if not self.users:
                self.calls.send(UseModel(self.id, is_used=False))


class RemoteModels:
    """The models of the main process.

    Each id keeps its object, because requests may use a model that was lost, while it is loaded again.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known: dict[str, RemoteModel] = {}

    def of(self, entries: list[ModelEntry]) -> list[RemoteModel]:
        """Return the models of a message."""
        return [self._model(entry) for entry in entries]

    def _model(self, entry: ModelEntry) -> RemoteModel:
        model = self._known.get(entry.id)
        if model is None:
            model = self._known[entry.id] = RemoteModel(entry.id, entry.checkpoint)
            model.calls = self._calls
        model.checkpoint, model.ready = entry.checkpoint, entry.ready
        model.is_leaving, model.is_on_demand = entry.is_leaving, entry.is_on_demand
        model.identifies = entry.identifies
        return model


@dataclass(frozen=True, slots=True)
class RemoteCore:
    """The core of a service whose dispatcher is in the main process; see `service.http.core.Core`."""

    gate: Gate
    catalog: Catalog
    loads_on_demand: bool
    calls: Calls

    async def get_or_load(self, name: str, resources: AsyncExitStack) -> ServedModel | None:
        """Return a model, after the main process has loaded it if needed."""
        call = self.calls.number()
        try:
            reply = await self.calls.begin(GetOrLoad(call, name))
            assert isinstance(reply, Granted)
            # Not by `find`: it may be leaving already, but stays until this request is answered.
            if reply.model is None or reply.model not in self.catalog:
                return None
            model = self.catalog[reply.model]
            resources.enter_context(model.use())
            return model
        finally:
            self.calls.end(call)  # it is held here now

    @asynccontextmanager
    async def use_key(self, allowance: Allowance) -> AsyncIterator[None]:
        """Count a request in the limits of its key."""
        if allowance.name is None or allowance.limits == _NO_LIMITS:
            yield
            return
        async with self._used(allowance, UseKey(self.calls.number(), allowance.name)) as use:
            try:
                yield
            except Exception as error:
                use.has_failed = error_response(error).status_code == 503
                raise

    @asynccontextmanager
    async def use_audio(self, allowance: Allowance, seconds: float) -> AsyncIterator[None]:
        """Count a recording in the limits of its key."""
        if allowance.name is None or allowance.limits == _NO_LIMITS:
            yield
            return
        async with self._used(allowance, UseAudio(self.calls.number(), allowance.name, seconds)) as use:
            try:
                yield
            except Exception:
                use.has_failed = True
                raise

    @asynccontextmanager
    async def _used(self, allowance: Allowance, message: UseKey | UseAudio) -> AsyncIterator["_Use"]:
        use = _Use()
        try:
            reply = await self.calls.begin(message)
            assert isinstance(reply, Granted | LimitReached)
            if reply.levels is not None:
                allowance.set_levels(*reply.levels)
            if isinstance(reply, LimitReached):
                raise RequestError(
                    reply.message,
                    code=ErrorCode.RATE_LIMIT_EXCEEDED,
                    retry_after=reply.retry_after,
                    should_retry=reply.should_retry,
                )
            yield use
        finally:
            self.calls.end(message.call, has_failed=use.has_failed)


@dataclass(slots=True)
class _Use:
    has_failed: bool = False


class RemoteQueue:
    """The queue of the main process; see `service.dispatch.queue.Queue`."""

    def __init__(self, calls: Calls, arena: Arena) -> None:
        self._calls = calls
        self._arena = arena

    @asynccontextmanager
    async def accept(
        self, model: str, seconds: float, *, is_single: bool, is_background: bool
    ) -> AsyncIterator[AcceptedRecording]:
        """Gate 2: at once, or if a single message has all samples, when that arrives."""
        assert not is_background
        if is_single:
            yield RemoteRecording(self._calls, self._arena, None, seconds)
            return
        call = self._calls.number()
        try:
            await self._calls.begin(Accept(call, model, seconds))
            yield RemoteRecording(self._calls, self._arena, call, seconds)
        finally:
            self._calls.end(call)


@dataclass(slots=True)
class RemoteRecording:
    """A recording that the main process accepted, or will decide on with its samples."""

    calls: Calls
    arena: Arena
    number: int | None
    seconds: float
    _rooms: dict["asyncio.Future[None]", int] = field(default_factory=dict)

    @property
    def window(self) -> "RemoteRecording":
        """The window of the main process."""
        return self

    def acquire(self, samples: int) -> asyncio.Future[None]:
        """Ask for room."""
        assert self.number is not None
        call = self.calls.number()
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rooms[room] = call

        def grant(reply: "asyncio.Future[Reply]") -> None:
            if not reply.cancelled() and not reply.exception() and not room.done():
                room.set_result(None)

        self.calls.begin(AcquireRoom(call, self.number, samples)).add_done_callback(grant)
        return room

    def release(self, room: asyncio.Future[None]) -> None:
        """Give back room, granted or not."""
        room.cancel()
        self.calls.end(self._rooms.pop(room))

    async def grow(self, seconds: float) -> None:
        """Count more audio; see `service.dispatch.queue.AcceptedRecording`."""
        assert self.number is not None
        await self.calls.begin(Grow(self.calls.number(), self.number, seconds))
        self.seconds += seconds

    async def transcribe(self, part: Part) -> Answer:
        """Transcribe a part; see `service.dispatch.queue.AcceptedRecording`."""
        call = self.calls.number()
        reply = await self._reply(Transcribe(call, self.number, self.seconds, self._entry(part)))
        assert isinstance(reply, Answered)
        return Answer(reply.transcript, reply.queue_seconds)

    async def identify(self, part: Part) -> Probabilities:
        """Identify the language of a part; see `service.dispatch.queue.AcceptedRecording`."""
        assert self.number is not None
        reply = await self._reply(Identify(self.calls.number(), self.number, self._entry(part)))
        assert isinstance(reply, LanguageProbabilities)
        return reply.probabilities

    def _entry(self, part: Part) -> PartEntry:
        """Put the samples of a part where the main process reads them, and return the part for a message."""
        left = None if part.deadline is None else part.deadline - asyncio.get_running_loop().time()
        trace = current()
        traceparent = None if trace is None else str(trace.traceparent)
        place = self.arena.put(part.samples)
        return PartEntry(place, part.share, str(part.caller), left, part.lane, part.prompt, traceparent)

    async def _reply(self, message: Transcribe | Identify) -> Reply:
        """Send a message about a part, wait for the reply, and free its samples."""
        reply = self.calls.begin(message)
        # The main process replies in any case, and reads the samples no more, unless the part was withdrawn while its
        # batch was written to the staging; then its transcript is dropped.
        reply.add_done_callback(lambda _: self.arena.free(message.part.place.offset))
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            self.calls.send(End(message.call))
            reply.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
