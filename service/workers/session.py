"""The main process's side of one worker: does what the worker asks for, and takes it back when the worker ends."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import aclosing

from service.channel import Channel
from service.demand import DemandError
from service.dispatch.errors import DispatchError, OverloadedError, RefusedError
from service.http.core import LocalCore
from service.http.errors import RequestError, shortage_of
from service.shared_audio import ArenaView
from service.supervision import Child
from service.workers import protocol
from service.workers.handed_over import HandedOver
from service.workers.protocol import Ended, Failure, FromWorker, Granted

log = logging.getLogger("steno.workers")


class Session:
    """Serves one worker, whose socket and memory are the session's from now on."""

    def __init__(self, core: LocalCore, relay: Callable[[int], None], worker: Child) -> None:
        self._core = core
        self._relay = relay
        self._descriptor = worker.memory
        self._memory = ArenaView(worker.memory)
        self._loop = asyncio.get_running_loop()
        # By the number of the worker's call:
        self._tasks: dict[int, asyncio.Task[Ended]] = {}
        self._granted: dict[int, asyncio.Future[bool]] = {}  # done when it is given back: whether the request failed
        self._recordings: dict[int, HandedOver] = {}
        self.process = worker.process
        self.channel = Channel(worker.connection, protocol.from_worker, self._handle)
        self.is_listening = False  # whether it answers connections
        self.is_stuck = False  # whether it was silent for too long, and is killed
        self.last_message = self._loop.time()
        self.metrics: protocol.Series = {}

    async def close(self) -> None:
        """Withdraw all that the worker asked for, and take back all that it holds, after it is gone."""
        self.channel.close()
        tasks = list(self._tasks.values())
        for call in self._tasks:
            self._end(call, has_failed=True)
        await asyncio.gather(*tasks, return_exceptions=True)
        os.close(self._descriptor)

    def _handle(self, message: FromWorker) -> None:
        self.last_message = self._loop.time()
        match message:
            case protocol.Transcribe():
                file = None if message.item else self.channel.take_descriptor()
                recording = HandedOver(message, self._memory, file, self._core.recordings.threads)
                self._recordings[message.call] = recording
                self._run(message.call, self._transcribe(message, recording))
            case protocol.Cuts(call, segment):
                if cut := self._recordings.get(call):
                    cut.found.put_nowait(segment)
            case protocol.End(call, has_failed):
                self._end(call, has_failed=has_failed)
            case protocol.UseKey():
                self._run(message.call, self._use_key(message))
            case protocol.HoldModel():
                self._run(message.call, self._hold_model(message))
            case protocol.Relay():
                if (connection := self.channel.take_descriptor()) is not None:  # else the client's end is closed now
                    self._relay(connection)
            case protocol.Snapshot(series):
                self.metrics = series
                self.is_listening = True

    def _run(self, call: int, work: Coroutine[None, None, Ended]) -> None:
        """Do the work of a call; `Ended` comes in any case, also if `End` withdraws it before it began."""
        self._tasks[call] = asyncio.create_task(work)
        self._tasks[call].add_done_callback(lambda done: self._note_end(call, done))

    def _end(self, call: int, *, has_failed: bool) -> None:
        if granted := self._granted.get(call):
            if not granted.done():
                granted.set_result(has_failed)
        elif task := self._tasks.get(call):
            task.cancel()

    def _note_end(self, call: int, done: "asyncio.Task[Ended]") -> None:
        del self._tasks[call]
        self._granted.pop(call, None)
        if recording := self._recordings.pop(call, None):
            recording.close()
        if done.cancelled():
            self.channel.send(Ended(call))
        elif error := done.exception():
            self.channel.send(Ended(call, failure_of(error)))
            if not isinstance(error, DispatchError | DemandError):
                log.error("request of a worker failed", exc_info=error)
        else:
            self.channel.send(done.result())

    async def _transcribe(self, message: protocol.Transcribe, recording: HandedOver) -> Ended:
        async with aclosing(self._core.recordings.transcribe(recording, message.options)) as answers:
            async for answer in answers:
                self.channel.send(protocol.Answered(message.call, answer))
        return Ended(message.call)

    async def _use_key(self, message: protocol.UseKey) -> Ended:
        allowance = self._core.access.allowance(message.name)
        try:
            async with self._core.use_key(allowance, message.seconds):
                await self._until_end(Granted(message.call, levels=allowance.levels))
        except RequestError as error:
            return Ended(message.call, failure_of(error), allowance.levels)
        return Ended(message.call)

    async def _hold_model(self, message: protocol.HoldModel) -> Ended:
        async with self._core.hold_model(message.name) as model:
            await self._until_end(Granted(message.call, None if model is None else model.id))
        return Ended(message.call)

    async def _until_end(self, granted: Granted) -> None:
        """Grant what a call asks for, and wait until it is given back.

        Raises:
            OverloadedError: if its request has failed; a key gets its limits back for it.
        """
        ended = self._granted[granted.call] = self._loop.create_future()
        self.channel.send(granted)
        if await ended:
            raise OverloadedError("", 1)


def failure_of(error: BaseException) -> Failure:
    """Return an error for a message; `service.workers.remote.error_of` reads it."""
    error = shortage_of(error) or error
    retry_after = error.retry_after if isinstance(error, RefusedError | DemandError | RequestError) else None
    should_retry = error.should_retry if isinstance(error, RequestError) else None
    return Failure(type(error).__name__, str(error), retry_after, should_retry)
