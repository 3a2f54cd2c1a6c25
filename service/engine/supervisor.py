"""Starts an engine process, has it load models, watches it, and replaces it when it dies or hangs."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from enum import StrEnum
from typing import Protocol

import msgspec

from audio.samples import Samples
from service.channel import Channel
from service.engine.environment import ALLOCATOR
from service.engine.kept import bar
from service.engine.protocol import (
    Barred,
    Batch,
    Downloading,
    Failure,
    FailureKind,
    FromEngine,
    Heartbeat,
    Load,
    LoadFailure,
    Ready,
    Result,
    Stop,
    Trying,
    Unload,
    from_engine,
)
from service.shared_audio import Arena
from service.supervision import end, keep_running, kill, started
from service.threads import in_thread

log = logging.getLogger("steno.supervisor")

SPEECH_ENGINE = "service.engine.process"

# Enough for a cold page cache and a full warm-up. It begins again with each report of a download.
_LOAD_SECONDS = 900.0
_LOADING_SILENCE_SECONDS = 60.0
_TRIAL_SECONDS = 60.0  # of a fast path, of which compiling takes most
_STOP_SECONDS = 5.0
_WATCH_SECONDS = 0.5
_OVERSLEPT_SECONDS = 1.0
_FEW_SAMPLES = 1 << 19  # 2 MB, which take less time to copy than another thread takes to start


class EngineStartError(RuntimeError):
    """No engine can be started; the message says why in one line."""

    def __init__(self, reason: str, *, is_first: bool) -> None:
        super().__init__(reason)
        # Whether no engine was ever ready, so that the configuration is at fault and not the device.
        self.is_first = is_first


class ModelLoadError(RuntimeError):
    """A model cannot be loaded; the message says why in one line."""


class EngineGoneError(ModelLoadError):
    """No engine is running that could load the model."""


class Loss(StrEnum):
    """The reason why an engine is gone; a label of `steno_engine_restarts_total`."""

    EXIT = "exit"
    STUCK = "stuck"
    DEVICE = "cuda_fatal"
    STOPPED = "stopped"


class Engine:
    """The front's view of one engine process."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        channel: Channel[FromEngine],
        memory: int,
        writing: Executor,
        clock: Callable[[], float],
    ) -> None:
        self.name = name  # name of its device
        self.pid = process.pid
        self.models: dict[str, Ready] = {}  # its description of each ready model, by id
        self.process = process
        self.channel = channel
        self.loss = Loss.EXIT  # the reason of its end; EXIT until another is known
        self.tried_paths: dict[str, str] = {}  # the fast paths that it has tried, and the setup of each
        self.start_failure: LoadFailure | None = None  # why it cannot load a configured model, if so
        self._clock = clock
        self._load_began = self._last_message = clock()
        self.arena = Arena(memory)
        self._writing = writing
        self._loading: set[str] = set()
        self._slot_seconds = 0.0
        self._outstanding: dict[int, float] = {}
        self._trial: tuple[Trying, float] | None = None
        self._places: dict[int, int] = {}  # of the samples of a batch, by its number

    @property
    def free_slots(self) -> int:
        """Batches it would take now."""
        return min((ready.slots for ready in self.models.values()), default=0) - len(self._outstanding)

    def load(self, load: Load) -> None:
        """Ask the engine to load a model; the answer comes as a message."""
        self._loading.add(load.model)
        self._load_began = self._clock()
        self.channel.send(load)

    def unload(self, model: str) -> None:
        """Ask the engine to unload a model that no request uses."""
        self.models.pop(model, None)
        self.channel.send(Unload(model))

    def become_ready(self, ready: Ready, longest_seconds: float) -> None:
        """Note what a model that is loaded can do; batches for it may be sent from now on."""
        self.end_load(ready.model)
        self._slot_seconds = max(self._slot_seconds, ready.batch_seconds, longest_seconds)
        self.models[ready.model] = ready

    def end_load(self, model: str) -> None:
        """Record that a load is over; the next one begins now."""
        self._loading.discard(model)
        self._load_began = self._clock()

    def note_message(self, message: FromEngine) -> None:
        """Note a message, which ends a silence."""
        self._last_message = self._clock()
        if isinstance(message, Downloading):
            self._load_began = self._last_message

    def excuse(self, seconds: float) -> None:
        """Do not count the last ``seconds``, in which this process was stopped, and perhaps the engine too."""
        self._last_message = self._clock()  # its messages since then are not read yet
        self._load_began += seconds
        self._outstanding = {number: began + seconds for number, began in self._outstanding.items()}

    def stop(self) -> None:
        """Ask it to end."""
        self.loss = Loss.STOPPED
        self.channel.send(Stop())

    def kill(self, loss: Loss) -> None:
        """End it at once."""
        self.loss = loss
        kill(self.process)

    async def send(self, batch: Batch, utterances: Sequence[Samples]) -> None:
        """Send a batch for which a slot was taken; its `Result` or `Failure` comes to the listener.

        Whatever it raises, the batch was not sent, and its slot is free again.

        Raises:
            OSError: if the shared memory cannot grow.
        """
        try:
            items = self.arena.reserve([len(samples) for samples in utterances])
            self._places[batch.number] = items[0].offset
            if sum(map(len, utterances)) <= _FEW_SAMPLES:
                self.arena.write(items, utterances)
            else:  # in a thread, because copying a GPU's batch of a hundred megabytes would block the event loop
                await in_thread(self._writing, lambda: self.arena.write(items, utterances))
        except Exception:
            self.answered(batch.number)
            raise
        self.channel.send(msgspec.structs.replace(batch, items=items))

    def take_slot(self, number: int) -> None:
        """Reserve a slot, at once, for a batch that `send` will send."""
        self._outstanding[number] = self._clock()

    def answered(self, number: int) -> bool:
        """Free the slot of a batch; False if it was not outstanding here."""
        if (place := self._places.pop(number, None)) is not None:
            self.arena.free(place)
        return self._outstanding.pop(number, None) is not None

    def begin_trial(self, trying: Trying) -> None:
        """Record which fast path it tries from now on, or that it tries none."""
        self._trial = (trying, self._clock()) if trying.path else None
        if trying.path:
            self.tried_paths[trying.path] = trying.setup

    @property
    def tried(self) -> Trying | None:
        """The trial of a fast path that is under way."""
        return self._trial and self._trial[0]

    def is_stuck(self, timeout: float) -> bool:
        """Return whether it is silent, loads for ever, or computes for far longer than its batches can take.

        It sends a heartbeat each second, but importing libraries may hold the interpreter lock: for long before its
        first model is ready, and for a few seconds while it loads a further one.
        """
        now, patience = self._clock(), timeout
        if self._trial and now - self._trial[1] > _TRIAL_SECONDS:
            return True
        if self._loading:
            patience = 2 * timeout if self.models else max(timeout, _LOADING_SILENCE_SECONDS)
        if now - self._last_message > patience:
            return True
        if self._loading and now - self._load_began > _LOAD_SECONDS:
            return True
        slowest = min((ready.rtfx for ready in self.models.values()), default=1.0)
        expected = self._slot_seconds / slowest * len(self._outstanding)
        return now - min(self._outstanding.values(), default=now) > 2 * (timeout + expected)

    def release(self) -> None:
        """Close the socket and the memory."""
        self.channel.close()
        self.arena.close()


class EngineListener(Protocol):
    """Receives events of engines and batches."""

    def engine_started(self, engine: Engine) -> None:
        """An engine process was started; it is not ready."""

    def engine_ready(self, engine: Engine, ready: Ready) -> None:
        """An engine has loaded a model; batches for it may be sent."""

    def model_lost(self, model: str, reason: str) -> None:
        """A model that was loaded on demand was lost with its engine, and will not be loaded again."""

    def engine_heartbeat(self, engine: Engine) -> None:
        """An engine gave a sign of life."""

    def engine_answered(self, engine: Engine, answer: Result | Failure) -> None:
        """A batch is done; its slot is free."""

    def engine_lost(self, engine: Engine, loss: Loss) -> None:
        """An engine is gone, with its unanswered batches."""


class Supervisor:
    """Keeps one engine process running for one device.

    Args:
        longest_seconds: the longest utterance that will be sent.
        timeout: seconds of silence after which an engine is replaced. It may compute for twice that long, plus twice
            the expected time of its batches.
        engine_arguments: its command line, besides its device.
    """

    def __init__(
        self,
        loads: Iterable[Load],
        listener: EngineListener,
        *,
        device: str,
        longest_seconds: float,
        timeout: float,
        module: str = SPEECH_ENGINE,
        engine_arguments: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loads = {load.model: load for load in loads}
        self._required = frozenset(self._loads)
        self._awaited: dict[str, asyncio.Future[None]] = {}
        self._barred: dict[str, str] = {}
        self._suspects: list[tuple[str, str, str]] = []  # as they are kept
        self._listener = listener
        self._device = device
        self._longest_seconds = longest_seconds
        self._timeout = timeout
        self._clock = clock
        self._command = [sys.executable, "-P", "-m", module, "--device", device, *engine_arguments]
        self.engine: Engine | None = None  # the one that is running now
        self._stopping = asyncio.Event()
        self._was_ready = False
        # Started now, so that batches can be sent later even if the system can start no thread.
        self._writing = ThreadPoolExecutor(1, "staging")
        self._writing.submit(int)

    async def run(self) -> None:
        """Start and replace engines until `stop`.

        Raises:
            EngineStartError: if the first start fails, or too many in a row do.
        """
        with self._writing:
            failure = await keep_running(
                *(f"engine on {self._device}", self._start, self._run_one, self._stopping),
                is_hopeless=lambda were_many: were_many or not self._was_ready,
            )
        if failure:
            raise EngineStartError(failure, is_first=not self._was_ready)

    async def _run_one(self, engine: Engine) -> str | None:
        """Run an engine until it is gone; return why no engine can have all configured models ready, if that shows."""
        if self._stopping.is_set():  # `stop` was called before the engine existed; it has no requests
            engine.kill(Loss.STOPPED)
        loss = await self._watch(engine)
        log.log(
            logging.INFO if loss is Loss.STOPPED else logging.ERROR,
            "engine gone",
            extra={"pid": engine.pid, "device": engine.name, "reason": str(loss)},
        )
        self.engine = None
        self._listener.engine_lost(engine, loss)
        if engine.tried is not None and loss is not Loss.STOPPED:  # it begins again without that path
            self._bar(engine.tried.setup, engine.tried.path or "", "hung" if loss is Loss.STUCK else "failed")
            return None
        if self._required <= engine.models.keys() or self._leaves_out_more(engine, loss):
            return None
        return engine.start_failure.message if engine.start_failure else f"the engine ended while it started ({loss})"

    def _leaves_out_more(self, engine: Engine, loss: Loss) -> bool:
        """Return whether the next engine leaves out the fast paths that a first one tried before it failed.

        A trial does not show all: a path may fail at another size. They are kept once an engine is ready without them.
        """
        failure = engine.start_failure
        says_nothing = failure and failure.kind in (None, FailureKind.OUT_OF_MEMORY)  # of them
        suspects = engine.tried_paths.keys() - self._barred.keys()
        if self._was_ready or says_nothing or loss is Loss.STOPPED or not suspects:
            return False
        state = "hung" if loss is Loss.STUCK else "failed"
        reason = failure.message if failure else str(loss)
        extra = {"device": self._device, "reason": reason}
        log.error("fast paths left out, for one of them failed after its trial", extra=extra)
        self._suspects = [(engine.tried_paths[path], path, state) for path in sorted(suspects)]
        self._barred = self._barred | dict.fromkeys(suspects, state)
        return True

    async def stop(self) -> None:
        """Ask the engine to end, and kill it if it does not."""
        self._stopping.set()
        if (engine := self.engine) is None:
            return
        engine.stop()
        await end(engine.process, _STOP_SECONDS if engine.models else 0.0)  # while it loads, it has no requests

    async def load(self, load: Load) -> None:
        """Load another model, now and after each restart, until `unload`.

        Raises:
            ModelLoadError: if it cannot be loaded, or there is no engine, or it is lost meanwhile.
        """
        if self.engine is None:
            raise EngineGoneError("no engine is running; try again later")
        answer = self._awaited[load.model] = asyncio.get_running_loop().create_future()
        self._loads[load.model] = load
        self.engine.load(msgspec.structs.replace(load, barred=self._barred))
        await asyncio.shield(answer)

    def unload(self, model: str) -> None:
        """Unload a model that no request uses."""
        self._loads.pop(model, None)
        self._required -= {model}
        if self.engine is not None:
            self.engine.unload(model)

    async def _start(self) -> Engine:
        async with started(self._command, environment=_environment()) as child:
            channel = Channel(child.connection, from_engine, lambda message: self._handle(engine, message))
            engine = Engine(self._device, child.process, channel, child.memory, self._writing, self._clock)
        log.info("engine started", extra={"pid": engine.pid, "device": engine.name})
        for load in self._loads.values():
            engine.load(msgspec.structs.replace(load, barred=self._barred))
        self._listener.engine_started(engine)
        self.engine = engine
        return engine

    async def _watch(self, engine: Engine) -> Loss:
        """Handle the engine's messages until it is gone; return why."""
        watchdog = asyncio.create_task(self._kill_when_stuck(engine))
        try:
            await engine.channel.lost
        finally:
            watchdog.cancel()
            # The stream ends when the process does; a process that lives on without it is of no use.
            await end(engine.process, _STOP_SECONDS)
            engine.release()
            for model in list(self._awaited):
                self._give_up_load(model, "the engine was lost while it loaded")
        return engine.loss

    def _handle(self, engine: Engine, message: FromEngine) -> None:
        engine.note_message(message)
        match message:
            case Trying():
                engine.begin_trial(message)
            case Barred():
                self._bar(message.setup, message.path, message.state)
            case Heartbeat():
                self._listener.engine_heartbeat(engine)
            case Ready() if message.model not in self._loads:
                # It was unloaded while the engine loaded it, and an engine unloads only what it has.
                engine.end_load(message.model)
                engine.unload(message.model)
                if message.model in self._awaited:
                    self._give_up_load(message.model, "it was unloaded while it loaded")
            case Ready():
                engine.become_ready(message, self._longest_seconds)
                self._pin(message)
                self._note_ready(engine)
                log.info(
                    "model ready",
                    extra={
                        "pid": engine.pid,
                        "model": message.model,
                        "device": message.info.device,
                        "dtype": message.info.dtype,
                        "rtfx": round(message.rtfx, 1),
                        "load_seconds": round(message.load_seconds, 2),
                        "warmup_seconds": round(message.warmup_seconds, 2),
                        "weight_bytes": message.weight_bytes,
                    },
                )
                self._listener.engine_ready(engine, message)
                if answer := self._awaited.pop(message.model, None):
                    answer.set_result(None)
            case LoadFailure():
                engine.end_load(message.model)
                self._load_failed(engine, message)
            case Failure(kind=FailureKind.DEVICE):
                engine.loss = Loss.DEVICE  # it exits by itself, and its batches count as lost, not as failed
            case Result() | Failure():
                if engine.answered(message.number):
                    self._listener.engine_answered(engine, message)

    def _bar(self, setup: str, path: str, state: str) -> None:
        """Have later engines leave out a fast path, also after a restart of the service."""
        log.error("fast path barred", extra={"device": self._device, "path": path, "state": state, "setup": setup})
        self._barred = self._barred | {path: state}
        bar(setup, path, state)

    def _note_ready(self, engine: Engine) -> None:
        """Record that all configured models are ready, if they are: what was left out for that was at fault."""
        if self._required <= engine.models.keys():
            self._was_ready = True
            for suspect in self._suspects:
                bar(*suspect)
            self._suspects = []

    def _pin(self, ready: Ready) -> None:
        """Make later engines load the same files, without asking the hub again, and have the same batch budget."""
        load = self._loads.get(ready.model)
        if load is not None and ready.checkpoint is not None:
            pinned = msgspec.structs.replace(
                load, checkpoint=ready.checkpoint, identity=ready.identity, batch_seconds=ready.batch_seconds
            )
            self._loads[ready.model] = pinned

    def _load_failed(self, engine: Engine, failure: LoadFailure) -> None:
        """Kill an engine that cannot load a configured model; it does without any other model."""
        model, reason = failure.model, failure.message
        if model in self._required:
            engine.start_failure = failure
            engine.kill(Loss.EXIT)
        elif model in self._awaited:
            self._give_up_load(model, reason)
        elif self._loads.pop(model, None):
            log.error("model lost", extra={"model": model, "reason": reason})
            self._listener.model_lost(model, reason)

    def _give_up_load(self, model: str, reason: str) -> None:
        self._loads.pop(model, None)
        answer = self._awaited.pop(model)
        answer.set_exception(ModelLoadError(reason))
        answer.exception()  # the caller may have left

    async def _kill_when_stuck(self, engine: Engine) -> None:
        while True:
            asleep = self._clock()
            await asyncio.sleep(_WATCH_SECONDS)
            overslept = self._clock() - asleep - _WATCH_SECONDS
            if overslept > _OVERSLEPT_SECONDS:
                engine.excuse(overslept)
            elif engine.is_stuck(self._timeout):
                break
        log.error("engine stuck", extra={"pid": engine.pid, "device": engine.name})
        engine.kill(Loss.STUCK)


# An engine's environment variables, unless the operator set them.
_DEFAULT_ENVIRONMENT = {
    **ALLOCATOR,
    # OpenMP's threads spin at barriers for milliseconds before they sleep. The front and its decoding threads share the
    # cores, and a spinning thread may keep the one that it waits for from running (docs/performance.md at 4f03a9e).
    "GOMP_SPINCOUNT": "10000",
}


def _environment() -> dict[str, str]:
    """Return an engine's environment: ours without settings, which `Load` has; keys and secrets are none of its."""
    ours = {name: value for name, value in os.environ.items() if not name.upper().startswith("STENO_")}
    return _DEFAULT_ENVIRONMENT | ours
