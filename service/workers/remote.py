"""What a worker's HTTP needs of the main process: the models, the limits of keys, and transcripts."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
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
from service.workers import protocol
from service.workers.protocol import Answered, End, Ended, Failure, Granted

_NO_LIMITS = KeyLimits()
_ERRORS: dict[str, Callable[..., Exception]] = {
    kind.__name__: kind for kind in (*RefusedError.__subclasses__(), *DispatchError.__subclasses__(), DemandError)
}

Question = protocol.HoldModel | protocol.UseKey | protocol.Transcribe
Reply = Granted | Answered | Ended


@dataclass(frozen=True, slots=True)
class _Call:
    """What was asked for, until it has ended."""

    number: int
    place: int | None  # where its recording is in the arena; None if it is not there
    replies: asyncio.Queue[Reply | Exception] = field(default_factory=asyncio.Queue)  # an error withdraws it


class RemoteCore:
    """The core of a service whose dispatcher is in the main process; see `service.http.core.Core`.

    Its catalog is a copy of that there; `send` sends a message, and with it a descriptor, if one is given.
    """

    def __init__(
        self, gate: Gate, catalog: Catalog, *, loads_on_demand: bool, send: Callable[..., None], arena: Arena
    ) -> None:
        self.gate = gate
        self.catalog = catalog
        self.loads_on_demand = loads_on_demand
        self._send = send
        self._arena = arena
        self._numbers = count(1)
        self._calls: dict[int, _Call] = {}

    def handle(self, message: Reply) -> None:
        """Handle an answer of the main process."""
        call = self._calls[message.call]
        call.replies.put_nowait(message)
        if isinstance(message, Ended):
            del self._calls[message.call]
            if call.place is not None:
                self._arena.free(call.place)

    def _ask(self, message: Question, descriptor: int | None = None, place: int | None = None) -> _Call:
        self._send(message, descriptor)
        call = self._calls[message.call] = _Call(message.call, place)
        return call

    @asynccontextmanager
    async def hold_model(self, name: str) -> AsyncIterator[ServedModel | None]:
        """Hold a model, after the main process has found or loaded it; one of the settings stays without that."""
        model = self.catalog.find(name)
        if model is not None and not model.is_on_demand:
            yield model
            return
        call = self._ask(protocol.HoldModel(next(self._numbers), name))
        try:
            found = _granted(await call.replies.get()).model
            yield self.catalog[found] if found is not None and found in self.catalog else None
        finally:
            self._send(End(call.number))

    @asynccontextmanager
    async def use_key(self, allowance: Allowance, seconds: float | None = None) -> AsyncIterator[None]:
        """Count a request in the limits of its key, or the seconds of a recording."""
        if allowance.name is None or allowance.limits == _NO_LIMITS:
            yield
            return
        call, has_failed = self._ask(protocol.UseKey(next(self._numbers), allowance.name, seconds)), False
        try:
            reply = await call.replies.get()
            if isinstance(reply, Granted | Ended) and reply.levels is not None:
                allowance.set_levels(*reply.levels)
            _granted(reply)
            try:
                yield
            except Exception as error:
                has_failed = seconds is not None or error_response(error).status_code == HTTPStatus.SERVICE_UNAVAILABLE
                raise
        finally:
            self._send(End(call.number, has_failed))

    async def transcribe(self, recording: CutRecording, options: Options) -> AsyncGenerator[Answer, None]:
        """Hand a recording over, with its cuts as they are found, and yield its answers."""
        call = self._hand_over(recording, options)
        cutting = None if recording.is_whole else asyncio.create_task(self._send_cuts(call, recording))
        try:
            while True:
                match await call.replies.get():
                    case Answered(answer=answer):
                        yield answer
                    case Ended(failure=failure):
                        if failure is not None:
                            raise error_of(failure)
                        return
                    case Exception() as error:
                        raise error
        finally:
            if call.number in self._calls:
                self._send(End(call.number))
            if cutting is not None:
                cutting.cancel()
                await asyncio.wait({cutting})

    def _hand_over(self, recording: CutRecording, options: Options) -> _Call:
        file, item = recording.recording.descriptor, None
        if file is None:
            item = self._arena.put(recording.recording.read(0, recording.samples))
        of_recording = recording.rate, recording.samples, recording.is_whole, item
        message = protocol.Transcribe(next(self._numbers), options, *of_recording)
        return self._ask(message, file, None if item is None else item.offset)

    async def _send_cuts(self, call: _Call, recording: CutRecording) -> None:
        try:
            async with aclosing(recording.cuts()) as cuts:
                async for cut in cuts:
                    self._send(protocol.Cuts(call.number, cut))
            self._send(protocol.Cuts(call.number, None))
        except Exception as error:  # noqa: BLE001  # it is the request's
            call.replies.put_nowait(error)


def _granted(reply: Reply | Exception) -> Granted:
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
