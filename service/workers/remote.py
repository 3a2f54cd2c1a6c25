"""What a worker's HTTP needs of the main process: the models, the limits of keys, and transcripts."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count

from service.demand import DemandError
from service.dispatch.admission import Gate
from service.dispatch.catalog import Catalog, ServedModel
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import DispatchError, RefusedError
from service.dispatch.recordings import Options
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response
from service.http.keys.allowance import Allowance
from service.keys import KeyLimits
from service.shared_audio import Arena
from service.tracing import current
from service.workers import protocol
from service.workers.protocol import Answered, End, Ended, Failure, Granted

_NO_LIMITS = KeyLimits()
_ERRORS: dict[str, Callable[..., Exception]] = {
    kind.__name__: kind for kind in (*RefusedError.__subclasses__(), *DispatchError.__subclasses__(), DemandError)
}

Reply = Granted | Answered | Ended


@dataclass(slots=True)
class _Hold:
    """A model that the main process holds for some requests of this one."""

    call: int
    reply: asyncio.Future[Reply]
    users: int = 0


class RemoteCore:
    """The core of a service whose dispatcher is in the main process; see `service.http.core.Core`.

    Args:
        gate: gate 1 of this process.
        catalog: a copy of the models of the main process.
        loads_on_demand: whether any model may be loaded on demand.
        send: sends the main process a message, and with it a descriptor, if one is given.
        arena: memory that it maps.
    """

    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        *,
        loads_on_demand: bool,
        send: Callable[..., None],
        arena: Arena,
    ) -> None:
        self.gate = gate
        self.catalog = catalog
        self.loads_on_demand = loads_on_demand
        self._send = send
        self._arena = arena
        self._calls = count(1)
        self._handlers: dict[int, Callable[[Reply], None]] = {}
        self._places: dict[int, int] = {}  # in the arena, of the recording of a call
        self._holds: dict[str, _Hold] = {}

    def handle(self, message: Reply) -> None:
        """Handle an answer of the main process."""
        handler = self._handlers.get(message.call)
        if isinstance(message, Ended):
            self._handlers.pop(message.call, None)
            if (place := self._places.pop(message.call, None)) is not None:
                self._arena.free(place)
        if handler is not None:
            handler(message)

    @asynccontextmanager
    async def hold_model(self, name: str) -> AsyncIterator[ServedModel | None]:
        """Hold a model, after the main process has found or loaded it; requests at the same time share one hold."""
        hold = self._holds.get(name)
        if hold is None or (hold.reply.done() and self.catalog.find(name) is None):  # its model may be leaving
            call = next(self._calls)
            hold = self._holds[name] = _Hold(call, self._ask(protocol.HoldModel(call, name)))
        hold.users += 1
        try:
            model = _granted(await asyncio.shield(hold.reply)).model
            yield self.catalog[model] if model is not None and model in self.catalog else None
        finally:
            hold.users -= 1
            if not hold.users:
                self._send(End(hold.call))
                if self._holds.get(name) is hold:
                    del self._holds[name]

    @asynccontextmanager
    async def use_key(self, allowance: Allowance, seconds: float | None = None) -> AsyncIterator[None]:
        """Count a request in the limits of its key, or the seconds of a recording."""
        if allowance.name is None or allowance.limits == _NO_LIMITS:
            yield
            return
        call, has_failed = next(self._calls), False
        asked = self._ask(protocol.UseKey(call, allowance.name, seconds))
        try:
            reply = await asked
            assert not isinstance(reply, Answered)
            if reply.levels is not None:
                allowance.set_levels(*reply.levels)
            _granted(reply)
            try:
                yield
            except Exception as error:
                has_failed = seconds is not None or error_response(error).status_code == HTTPStatus.SERVICE_UNAVAILABLE
                raise
        finally:
            self._send(End(call, has_failed))

    def _ask(self, message: protocol.HoldModel | protocol.UseKey) -> asyncio.Future[Reply]:
        """Send what is answered once, and return its answer."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def handle(message: Reply) -> None:
            if not reply.done():
                reply.set_result(message)

        self._handlers[message.call] = handle
        self._send(message)
        return reply

    async def transcribe(self, recording: CutRecording, options: Options) -> AsyncGenerator[Answer, None]:
        """Hand a recording over, with its cuts as they are found, and yield its answers."""
        call, ended = next(self._calls), False
        replies: asyncio.Queue[Reply | Exception] = asyncio.Queue()
        self._hand_over(call, recording, options)
        self._handlers[call] = replies.put_nowait
        cutting = None if recording.is_whole else asyncio.create_task(self._send_cuts(call, recording, replies))
        try:
            while True:
                match await replies.get():
                    case Answered(answer=answer):
                        yield answer
                    case Ended(failure=failure):
                        ended = True
                        if failure is not None:
                            raise error_of(failure)
                        return
                    case Exception() as error:
                        raise error
        finally:
            if not ended:
                self._send(End(call))
            if cutting is not None:
                cutting.cancel()
                await asyncio.wait({cutting})

    def _hand_over(self, call: int, recording: CutRecording, options: Options) -> None:
        trace, file, item = current(), recording.recording.descriptor, None
        if file is None:
            item = self._arena.put(recording.recording.read(0, recording.samples))
            self._places[call] = item.offset
        traceparent = None if trace is None else str(trace.traceparent)
        of_recording = recording.rate, recording.samples, recording.is_whole, item
        self._send(protocol.Transcribe(call, options, *of_recording, traceparent), file)

    async def _send_cuts(self, call: int, recording: CutRecording, replies: "asyncio.Queue[Reply | Exception]") -> None:
        try:
            async with aclosing(recording.cuts()) as cuts:
                async for cut in cuts:
                    self._send(protocol.Cuts(call, cut))
            self._send(protocol.Cuts(call, None))
        except Exception as error:  # noqa: BLE001  # it is the request's
            replies.put_nowait(error)


def _granted(reply: Reply) -> Granted:
    if isinstance(reply, Granted):
        return reply
    assert isinstance(reply, Ended)
    raise error_of(reply.failure)


def error_of(failure: Failure | None) -> Exception:
    """Return the error of a message."""
    if failure is None:
        return RuntimeError("the main process gave a request up")
    kind, message, retry_after = failure.kind, failure.message, failure.retry_after
    if kind in _ERRORS:
        return _ERRORS[kind](message) if retry_after is None else _ERRORS[kind](message, retry_after)
    if kind == RequestError.__name__:  # only the limits of keys are checked there
        code = ErrorCode.RATE_LIMIT_EXCEEDED
        return RequestError(message, code=code, retry_after=retry_after, should_retry=failure.should_retry)
    return RuntimeError(f"the main process failed: {kind}: {message}")
