"""The life of an engine process: load models, warm them up, answer batches until told to stop.

The device is given work by one thread only, and should never wait for another: while it has a batch, a thread that
listens to the front lays the next one out for it, and a third waits for the batches, one after the other, and spells
their transcripts. A device that works through what it was given by itself has the next batch before the last is done. A
fourth thread loads models, so that batches for those that are there go on; a model's warm-up runs between them, bucket
by bucket.

What recognises speech is behind `Recognizer`, so this loop runs without torch, and the stub engine of the tests is
the real process with another recogniser in it.
"""

import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from service import logs
from service.engine.channel import EngineChannel
from service.engine.download import DownloadReport, OnDownload
from service.engine.protocol import (
    Batch,
    Failure,
    FailureKind,
    Heartbeat,
    Load,
    Prompt,
    Ready,
    Result,
    Stop,
    ToEngine,
    Transcript,
    Unload,
)
from service.engine.staging import Samples, StagingView
from service.priorities import give_way

HEARTBEAT_SECONDS = 1.0
# For how long a thread that wants the interpreter waits while another computes, in seconds. The one that gives the
# device its work wants it again after every launch, which takes microseconds (docs/performance.md).
SWITCH_INTERVAL = 0.0005
# New objects after which Python looks for unused cycles: the texts of a batch are thousands, and none is in a cycle.
_OBJECTS_UNTIL_COLLECTION = 100_000

log = logging.getLogger("steno.engine")


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A batch as its recogniser wants it, and its padded audio-seconds."""

    batch: Any
    padded_seconds: float


class Recognized(Protocol):
    """A batch that the device was given, for the thread that answers."""

    def wait(self) -> None:
        """Wait until the device is done with it, and raise what went wrong there."""

    def transcripts(self) -> list[Transcript]:
        """Return what was said in each utterance, after ``wait``."""


class Recognizer(Protocol):
    """A loaded model on its device."""

    info: dict[str, Any]
    spellings: Sequence[bytes]
    sample_rate: int
    batch_seconds: float
    padded_seconds: Sequence[float]
    places: int
    weight_bytes: int
    checkpoint: str
    identity: str | None

    def warm_up(self) -> Iterator[tuple[float, float]]:
        """Run a bucket a step, the largest first; yields its audio-seconds and its seconds."""

    def graphs(self) -> dict[str, dict[str, int]]:
        """Return how many CUDA graphs there are after the warm-up, by what they do and by state."""

    def lay_out(self, utterances: Sequence[Samples]) -> LaidOut:
        """Copy the utterances of a batch to where the device reads them; any thread may call this."""

    def recognize(self, laid_out: LaidOut, prompts: Sequence[Prompt], decoder: str | None) -> Recognized:
        """Let the device recognise one batch, each utterance as its prompt asks for it."""

    def kind_of(self, error: Exception) -> FailureKind:
        """Say whether the device can be trusted after this error; any thread may ask."""

    def release(self) -> None:
        """Give its memory back; it is not used again."""


# Loads a model, and tells of its download if there is one.
Loader = Callable[[Load, OnDownload], Recognizer]


def main(load: Loader) -> None:
    """Run an engine on the descriptors that the supervisor passed; does not return."""
    started = time.monotonic()
    parser = ArgumentParser()
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--log-format", choices=("json", "text"), default="json")
    parser.add_argument("--log-level", default="info")
    arguments = parser.parse_args()
    logs.configure(arguments.log_format, arguments.log_level)
    # The front decides when an engine ends: a Ctrl-C or a service manager's SIGTERM to the whole group must not
    # kill it under the requests that are being drained.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    give_way()
    keep_interpreter_free()
    channel = EngineChannel(socket.socket(fileno=arguments.socket))
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    try:
        status = Loop(channel, StagingView(arguments.memory), load, started).run()
    except OSError:
        status = 0  # the front is gone, nobody is left to answer
    sys.stderr.flush()
    # Without the interpreter's clean-up: a device that hangs while it is released must not keep the process.
    os._exit(status)


def keep_interpreter_free() -> None:
    """Let the thread that gives the device its work have the interpreter soon, whatever other threads do."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)


def _beat(channel: EngineChannel) -> None:
    while True:
        try:
            channel.send(Heartbeat())
        except OSError:
            os._exit(0)  # the front died while a batch runs
        time.sleep(HEARTBEAT_SECONDS)


@dataclass(slots=True)
class _Arrival:
    """A model on its way: loaded, or not, and if so how far its warm-up is."""

    load: Load
    began: float
    recognizer: Recognizer | None = None
    error: Exception | None = None
    loaded: float = 0.0
    steps: Iterator[tuple[float, float]] = field(default_factory=lambda: iter(()))
    audio_seconds: float = 0.0
    busy_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Laid:
    """A batch that the device can begin with; what lays it out raises if that failed. No recogniser: no such model."""

    batch: Batch
    recognizer: Recognizer | None
    laid_out: Callable[[], LaidOut]


class _DeviceLostError(Exception):
    """The device can no longer be trusted."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """An error after which the device cannot be trusted showed while a batch was waited for."""

    error: Exception


class Loop:
    """Does what the front says until it says `Stop`, its end of the stream closes, or the device is lost.

    Args:
        channel: to the front.
        staging: where the audio of batches lies.
        loader: loads a model.
        started: monotonic time at which the process began; the first model's loading time counts from there.
        clock: tells that time.
    """

    def __init__(
        self,
        channel: EngineChannel,
        staging: StagingView,
        loader: Loader,
        started: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._channel = channel
        self._staging = staging
        self._loader = loader
        self._started: float | None = started
        self._inbox: queue.SimpleQueue[_Event | None] = queue.SimpleQueue()
        self._unanswered: queue.SimpleQueue[Callable[[], Result | Failure] | None] = queue.SimpleQueue()
        self._recognizers: dict[str, Recognizer] = {}
        self._to_load: deque[_Arrival] = deque()
        self._is_loading = False
        self._warming: deque[_Arrival] = deque()
        self._done = started  # when the device was done with the last batch

    def run(self) -> int:
        """Return the exit status."""
        threading.Thread(target=self._listen, daemon=True).start()
        answering = threading.Thread(target=self._answer_all)
        answering.start()
        try:
            while (event := self._next_event()) is not None and not isinstance(event, Stop):
                self._handle(event)
        except _DeviceLostError:
            return 1
        finally:
            self._unanswered.put(None)
            answering.join()
        return 0

    def _listen(self) -> None:
        try:
            for message in self._channel.messages():
                self._inbox.put(self._laid(message) if isinstance(message, Batch) else message)
        finally:
            self._inbox.put(None)

    def _laid(self, batch: Batch) -> _Laid:
        """Lay a batch out for the device, which may have another one meanwhile."""
        recognizer = self._recognizers.get(batch.model)
        laying_out: Future[LaidOut] = Future()
        if recognizer is not None:
            try:
                utterances = [self._staging.read(item) for item in batch.items]
                laying_out.set_result(recognizer.lay_out(utterances))
            except Exception as error:  # noqa: BLE001  # the device's thread answers for it
                laying_out.set_exception(error)
        return _Laid(batch, recognizer, laying_out.result)

    def _answer_all(self) -> None:
        """Send the answers in their order, until there are no more."""
        while (answer := self._unanswered.get()) is not None:
            try:
                self._channel.send(answer())
            except OSError:
                return  # the front is gone, which the listener hears too

    def _next_event(self) -> "_Event | None":
        """Wait for what comes next; while nothing does, warm up what is loaded."""
        while self._warming:
            try:
                return self._inbox.get_nowait()
            except queue.Empty:
                self._warm_up(self._warming[0])
        return self._inbox.get()

    def _handle(self, event: "_Event") -> None:
        match event:
            case Load():
                self._to_load.append(_Arrival(event, self._started or self._clock()))
                self._started = None
                self._load_next()
            case _Arrival():
                self._is_loading = False
                self._take_in(event)
                self._load_next()
            case Unload():
                if recognizer := self._recognizers.pop(event.model, None):
                    recognizer.release()
            case _Laid():
                self._recognize(event)
            case _Lost():
                raise _DeviceLostError from event.error

    def _load_next(self) -> None:
        if self._to_load and not self._is_loading:
            self._is_loading = True
            threading.Thread(target=self._load, args=(self._to_load.popleft(),), daemon=True).start()

    def _load(self, arrival: _Arrival) -> None:
        load = arrival.load
        try:
            arrival.recognizer = self._loader(load, DownloadReport(load.checkpoint, self._channel.send))
        except Exception as error:  # noqa: BLE001  # whatever it is, the front must hear why there is no such model
            arrival.error = error
        arrival.loaded = self._clock()
        self._inbox.put(arrival)

    def _take_in(self, arrival: _Arrival) -> None:
        if arrival.recognizer is None:
            assert arrival.error is not None
            self._refuse(arrival, arrival.error)
        else:
            arrival.steps = arrival.recognizer.warm_up()
            self._warming.append(arrival)

    def _warm_up(self, arrival: _Arrival) -> None:
        """Run one more bucket; after the last, the model is ready."""
        recognizer = arrival.recognizer
        assert recognizer is not None
        try:
            step = next(arrival.steps, None)
        except Exception as error:
            self._warming.remove(arrival)
            kind = recognizer.kind_of(error)
            recognizer.release()
            self._refuse(arrival, error)
            if kind is FailureKind.DEVICE:
                raise _DeviceLostError from error
            return
        if step is not None:
            arrival.audio_seconds += step[0]
            arrival.busy_seconds += step[1]
            return
        self._warming.remove(arrival)
        self._recognizers[arrival.load.model] = recognizer
        self._channel.send(
            Ready(
                model=arrival.load.model,
                info=recognizer.info,
                spellings=list(recognizer.spellings),
                sample_rate=recognizer.sample_rate,
                batch_seconds=recognizer.batch_seconds,
                places=recognizer.places,
                rtfx=arrival.audio_seconds / arrival.busy_seconds,
                weight_bytes=recognizer.weight_bytes,
                load_seconds=arrival.loaded - arrival.began,
                warmup_seconds=self._clock() - arrival.loaded,
                checkpoint=recognizer.checkpoint,
                identity=recognizer.identity,
                padded_seconds=list(recognizer.padded_seconds),
                graphs=recognizer.graphs(),
            )
        )

    def _refuse(self, arrival: _Arrival, error: Exception) -> None:
        if not isinstance(error, ValueError | OSError):  # those two say in one line what is wrong with the input
            log.error("%s could not be loaded", arrival.load.model, exc_info=error)
        message = str(error) or type(error).__name__
        self._channel.send(Failure(None, FailureKind.LOAD, message, arrival.load.model))

    def _recognize(self, laid: _Laid) -> None:
        """Run a batch, and leave the answer to the thread that sends it."""
        began = self._clock()
        batch, recognizer, laid_out = laid.batch, laid.recognizer, laid.laid_out
        # Whoever asked has left, and the model went while the batch was on its way.
        if recognizer is None or recognizer is not self._recognizers.get(batch.model):
            gone = Failure(batch.number, FailureKind.BATCH, f"the model {batch.model!r} is gone")
            self._unanswered.put(lambda: gone)
            return
        try:
            recognized = recognizer.recognize(laid_out(), batch.prompts, batch.decoder)
        except Exception as error:  # one batch must not end the loop; the recogniser says if the device survived
            failure = _failure(batch, recognizer.kind_of(error), error)
            self._unanswered.put(lambda: failure)
            if failure.kind is FailureKind.DEVICE:
                raise _DeviceLostError from error
            return
        self._unanswered.put(lambda: self._answer(laid, recognizer, recognized, began))

    def _answer(self, laid: _Laid, recognizer: Recognizer, recognized: Recognized, began: float) -> Result | Failure:
        """Wait for a batch that the device began with at ``began`` at the earliest, and spell it."""
        try:
            recognized.wait()
            # The device had the batch before this one first.
            done = self._clock()
            seconds, self._done = done - max(began, self._done), done
            return Result(laid.batch.number, recognized.transcripts(), seconds, laid.laid_out().padded_seconds)
        except Exception as error:  # noqa: BLE001  # one batch must not end this thread, and that of the device hears
            failure = _failure(laid.batch, recognizer.kind_of(error), error)
            if failure.kind is FailureKind.DEVICE:
                self._inbox.put(_Lost(error))
            return failure


def _failure(batch: Batch, kind: FailureKind, error: Exception) -> Failure:
    log.error("batch %d of %d utterances failed (%s)", batch.number, len(batch.items), kind, exc_info=error)
    return Failure(batch.number, kind, f"{type(error).__name__}: {error}")


_Event = ToEngine | _Arrival | _Laid | _Lost
