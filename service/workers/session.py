"""The main process's side of one worker: does what the worker asks for, and takes it back when the worker ends."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import aclosing

from service.demand import DemandError
from service.dispatch.errors import DispatchError, OverloadedError, RefusedError
from service.http.core import LocalCore
from service.http.errors import RequestError, shortage_of
from service.shared_audio import ArenaView
from service.tracing import Trace, Traceparent, under
from service.workers.handed_over import HandedOver
from service.workers.protocol import (
    RELAYED,
    Answered,
    Cuts,
    End,
    Ended,
    Failure,
    FromWorker,
    Granted,
    HoldModel,
    MetricSamples,
    Snapshot,
    ToWorker,
    Transcribe,
    UseKey,
)
from service.workers.relay import RelayServer

_EXPECTED = (DispatchError, DemandError, RequestError)

log = logging.getLogger("steno.workers")


class Session:
    """Serves one worker.

    Args:
        core: the dispatcher's side of the service.
        relay: answers the requests that the worker passes on.
        memory: descriptor of the worker's arena.
        send: sends a message to the worker.

    Attributes:
        is_listening: whether the worker answers connections.
        last_message: event-loop time of its last message.
        metrics: its metrics.
    """

    def __init__(self, core: LocalCore, relay: RelayServer, memory: int, send: Callable[[ToWorker], None]) -> None:
        self._core = core
        self._relay = relay
        self._memory = ArenaView(memory)
        self._send = send
        self._loop = asyncio.get_running_loop()
        # By the number of the worker's call:
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._granted: dict[int, asyncio.Future[bool]] = {}  # done when it is given back: whether the request failed
        self._recordings: dict[int, HandedOver] = {}
        # A file comes on a socket of its own: before the message of its call, or after the call has ended.
        self._early_files: dict[int, int | None] = {}
        self._unwanted_files: set[int] = set()
        self.is_listening = False
        self.last_message = self._loop.time()
        self.metrics: MetricSamples = []

    def handle(self, message: FromWorker) -> None:
        """Do what a message asks for."""
        self.last_message = self._loop.time()
        match message:
            case Transcribe():
                self._begin(message)
            case Cuts():
                if recording := self._recordings.get(message.call):
                    recording.add_cut(message.segment)
            case End():
                self._end(message)
            case UseKey():
                self._run(message.call, self._use_key(message))
            case HoldModel():
                self._run(message.call, self._hold_model(message))
            case Snapshot():
                self.metrics = message.samples
                self.is_listening = True

    def take_descriptor(self, number: int, descriptor: int | None) -> None:
        """Take what the worker sent; None is what this process had no room for."""
        if number == RELAYED:
            if descriptor is not None:  # else the other end of the connection is closed now
                self._relay.take(descriptor)
        elif recording := self._recordings.get(number):
            recording.take_file(descriptor)
        elif number in self._unwanted_files:
            self._unwanted_files.remove(number)
            if descriptor is not None:
                os.close(descriptor)
        else:
            self._early_files[number] = descriptor

    async def close(self) -> None:
        """Withdraw all that the worker asked for, and take back all that it holds, after it is gone."""
        for call, task in self._tasks.items():
            if (granted := self._granted.get(call)) is None:
                task.cancel()
            elif not granted.done():
                granted.set_result(True)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for descriptor in self._early_files.values():
            if descriptor is not None:
                os.close(descriptor)

    def _run(self, call: int, work: Coroutine[None, None, None]) -> None:
        """Do the work of a call; `Ended` comes in any case, also if `End` withdraws it before it began."""
        self._tasks[call] = asyncio.create_task(work)
        self._tasks[call].add_done_callback(lambda done: self._note_end(call, done))

    def _note_end(self, call: int, done: "asyncio.Task[None]") -> None:
        del self._tasks[call]
        if recording := self._recordings.pop(call, None):
            if recording.waits_for_file:
                self._unwanted_files.add(call)
            recording.close()
        if done.cancelled():
            self._send(Ended(call))
        elif error := done.exception():
            self._send(Ended(call, failure_of(error)))
            if not isinstance(error, _EXPECTED):
                log.error("request of a worker failed", exc_info=error)

    def _begin(self, message: Transcribe) -> None:
        recording = self._recordings[message.call] = HandedOver(
            *(message.rate, message.samples),
            is_whole=message.is_whole,
            item=message.item,
            memory=self._memory,
            threads=self._core.recordings.threads,
        )
        if message.call in self._early_files:
            recording.take_file(self._early_files.pop(message.call))
        self._run(message.call, self._transcribe(message, recording))

    async def _transcribe(self, message: Transcribe, recording: HandedOver) -> None:
        parent = None if message.traceparent is None else Traceparent.parse(message.traceparent)
        with under(None if parent is None else Trace(parent, 0)):
            async with aclosing(self._core.recordings.transcribe(recording, message.options)) as answers:
                async for answer in answers:
                    self._send(Answered(message.call, answer))
        self._send(Ended(message.call))

    async def _use_key(self, message: UseKey) -> None:
        allowance = self._core.access.allowance(message.name)
        try:
            async with self._core.use_key(allowance, message.seconds):
                await self._until_end(Granted(message.call, levels=allowance.levels))
        except RequestError as error:
            self._send(Ended(message.call, failure_of(error), allowance.levels))

    async def _hold_model(self, message: HoldModel) -> None:
        async with self._core.hold_model(message.name) as model:
            await self._until_end(Granted(message.call, None if model is None else model.id))
        self._send(Ended(message.call))

    async def _until_end(self, granted: Granted) -> None:
        """Grant what a call asks for, and wait until it is given back.

        Raises:
            OverloadedError: if its request has failed; a key gets its limits back for it.
        """
        ended = self._granted[granted.call] = self._loop.create_future()
        self._send(granted)
        try:
            if await ended:
                raise OverloadedError("", 1)
        finally:
            del self._granted[granted.call]

    def _end(self, message: End) -> None:
        if (granted := self._granted.get(message.call)) is not None and not granted.done():
            granted.set_result(message.has_failed)
        elif task := self._tasks.get(message.call):
            task.cancel()


def failure_of(error: BaseException) -> Failure:
    """Return an error for a message; `service.workers.remote.error_of` reads it."""
    error = shortage_of(error) or error
    retry_after = error.retry_after if isinstance(error, RefusedError | DemandError | RequestError) else None
    should_retry = error.should_retry if isinstance(error, RequestError) else None
    return Failure(type(error).__name__, str(error), retry_after, should_retry)
