"""The life of an engine process: load models, warm them up, answer batches until `Stop`.

Four threads share the work, so that the device never waits:

- The main thread alone launches work on the device.
- A thread receives messages from the front, and collates the next batch while the device computes one.
- A thread waits for batches in order, and detokenizes them. A GPU has its next batch before the last is done.
- A thread loads models, while batches for loaded ones go on. A new model's warm-up runs step by step between them.

The model is behind `Recognizer`, so this loop runs without torch; the stub engine of benchmarks and tests is this
process with another recognizer.
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
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from audio.confinement import hide_from_siblings
from audio.samples import Samples
from service import logs
from service.channel import BlockingChannel
from service.engine.download import DownloadReport
from service.engine.protocol import (
    Answers,
    Batch,
    Failure,
    FailureKind,
    Heartbeat,
    Load,
    LoadFailure,
    Ready,
    Result,
    Stop,
    ToEngine,
    Unload,
    to_engine,
)
from service.priorities import give_way
from service.shared_audio import ArenaView
from transcripts.prompt import Prompt

HEARTBEAT_SECONDS = 1.0
# Python's switch interval in seconds: how long a thread waits for the interpreter lock while another one runs. The main
# thread needs it again after each launch, which takes microseconds (docs/performance.md at 4f03a9e).
SWITCH_INTERVAL = 0.0005
# New objects between two runs of the garbage collector: a batch's texts are thousands of objects without cycles.
_OBJECTS_UNTIL_COLLECTION = 100_000

log = logging.getLogger("steno.engine")


@dataclass(frozen=True, slots=True)
class Collated:
    """A batch in memory that the device reads, and its padded audio-seconds."""

    batch: Any
    padded_seconds: float


@dataclass(frozen=True, slots=True)
class Recognized:
    """A batch on the device, for the thread that answers."""

    wait: Callable[[], None]  # waits until the device is done with the batch, and raises its errors
    answers: Callable[[], Answers]  # returns the answer for each utterance, after ``wait``


class Recognizer(Protocol):
    """A loaded model on its device."""

    def warm_up(self) -> Iterator[tuple[float, float]]:
        """Warm up in steps of one batch, the largest first; yield the audio-seconds and the seconds of each."""

    def ready(self, *, rtfx: float, load_seconds: float, warmup_seconds: float) -> Ready:
        """Describe it after the warm-up."""

    def collate(self, utterances: Sequence[Samples]) -> Collated:
        """Copy the utterances of a batch, padded, to memory that the device reads; any thread may call this."""

    def share_processors(self, engines: int) -> None:
        """Compute the next batch while ``engines`` engines of this machine compute, this one included."""

    def recognize(self, collated: Collated, prompts: Sequence[Prompt], decoder: str | None) -> Recognized:
        """Launch one batch on the device, with a prompt for each utterance."""

    def kind_of(self, error: Exception) -> FailureKind:
        """Classify an error: can the device be trusted after it?

        Only the thread that launches work calls this, because it may wait for the device, which spoils a capture.
        """

    def release(self) -> None:
        """Free its memory; it is not used again."""


# Loads a model, and reports its download if there is one.
Loader = Callable[[Load, DownloadReport], Recognizer]


def main(load: Loader, finds_gpu: Callable[[], bool]) -> None:
    """Run an engine on the descriptors that the supervisor passed; never returns."""
    started = time.monotonic()
    hide_from_siblings()
    parser = ArgumentParser()
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--log-format", choices=("json", "text"), default="json")
    parser.add_argument("--log-level", default="info")
    arguments = parser.parse_args()
    logs.configure(arguments.log_format, arguments.log_level)
    # The front decides when an engine ends: a Ctrl-C or a service manager's SIGTERM to the whole group must not
    # kill it under the requests that are being drained.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kind = arguments.device.partition(":")[0]
    # Before there are threads, which inherit it. A GPU would wait for the thread that launches its work.
    if kind == "cpu" or (kind == "auto" and not finds_gpu()):
        give_way()
    keep_interpreter_free()
    channel = BlockingChannel(socket.socket(fileno=arguments.socket), to_engine)
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    try:
        status = Loop(channel, ArenaView(arguments.memory), load, started).run()
    except OSError:
        status = 0  # the front is gone
    sys.stderr.flush()
    # Without the interpreter's clean-up: the process must end even if releasing the device hangs.
    os._exit(status)


def keep_interpreter_free() -> None:
    """Make the interpreter switch threads often, so that the main thread gets the lock back soon."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)


def _beat(channel: BlockingChannel[ToEngine]) -> None:
    while True:
        try:
            channel.send(Heartbeat())
        except OSError:
            os._exit(0)  # the front is gone; the main thread may be busy with a batch
        time.sleep(HEARTBEAT_SECONDS)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The outcome of loading a model, and the times at which loading began and ended."""

    load: Load
    began: float
    ended: float
    outcome: Recognizer | Exception


@dataclass(frozen=True, slots=True)
class _Received:
    """A batch from the front, and its collated form or why there is none; no recognizer if the model is not loaded."""

    batch: Batch
    recognizer: Recognizer | None = None
    collated: Collated | Exception | None = None


@dataclass(frozen=True, slots=True)
class _Failed:
    """A launched batch, and the error that showed later. After `Stop` no request waits for it, and it is not sent."""

    batch: Batch
    recognizer: Recognizer
    error: Exception


class _DeviceLostError(Exception):
    """The device can no longer be trusted."""


class Loop:
    """Handles the front's messages until `Stop`, the end of the stream, or the loss of the device.

    The first model's loading time counts from when the process was ``started``, on the same monotonic clock.
    """

    def __init__(
        self,
        channel: BlockingChannel[ToEngine],
        arena: ArenaView,
        loader: Loader,
        started: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._channel = channel
        self._arena = arena
        self._loader = loader
        self._started: float | None = started
        self._inbox: queue.SimpleQueue[_Event | None] = queue.SimpleQueue()
        self._unanswered: queue.SimpleQueue[Callable[[], Result | Failure | None] | None] = queue.SimpleQueue()
        self._recognizers: dict[str, Recognizer] = {}
        self._to_load: deque[tuple[Load, float]] = deque()  # with the time from which loading counts
        self._is_loading = False
        self._warm_ups: deque[Iterator[None]] = deque()
        self._done = started  # when the device finished its last batch

    def run(self) -> int:
        """Run until the end, and return the exit status."""
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
                self._inbox.put(self._received(message) if isinstance(message, Batch) else message)
        finally:
            self._inbox.put(None)

    def _received(self, batch: Batch) -> _Received:
        """Collate a batch, while the device may compute another one."""
        recognizer = self._recognizers.get(batch.model)
        if recognizer is None:
            return _Received(batch)
        try:
            return _Received(batch, recognizer, recognizer.collate([self._arena.read(item) for item in batch.items]))
        except Exception as error:  # noqa: BLE001  # the main thread reports it
            return _Received(batch, recognizer, error)

    def _answer_all(self) -> None:
        """Send the answers in order, until the end; a failure that shows here is sent once it is classified."""
        while (answer := self._unanswered.get()) is not None:
            if (message := answer()) is None:
                continue
            try:
                self._channel.send(message)
            except OSError:
                return  # the front is gone; the receiving thread notices too

    def _next_event(self) -> "_Event | None":
        """Wait for the next event; meanwhile, warm up new models."""
        while self._warm_ups:
            try:
                return self._inbox.get_nowait()
            except queue.Empty:
                if next(self._warm_ups[0], _END) is _END:
                    self._warm_ups.popleft()
        return self._inbox.get()

    def _handle(self, event: "_Event") -> None:
        match event:
            case Load():
                self._to_load.append((event, self._started or self._clock()))
                self._started = None
                self._load_next()
            case _Loaded():
                self._is_loading = False
                if isinstance(event.outcome, Exception):
                    self._refuse(event.load.model, event.outcome)
                else:
                    self._warm_ups.append(self._warm_up(event, event.outcome))
                self._load_next()
            case Unload():
                if recognizer := self._recognizers.pop(event.model, None):
                    recognizer.release()
            case _Received():
                self._recognize(event)
            case _Failed():
                self._fail(event.batch, event.recognizer, event.error)

    def _load_next(self) -> None:
        if self._to_load and not self._is_loading:
            self._is_loading = True
            threading.Thread(target=self._load, args=self._to_load.popleft(), daemon=True).start()

    def _load(self, load: Load, began: float) -> None:
        try:
            outcome: Recognizer | Exception = self._loader(load, DownloadReport(load.model, self._channel.send))
        except Exception as error:  # noqa: BLE001  # the front gets any error
            outcome = error
        self._inbox.put(_Loaded(load, began, self._clock(), outcome))

    def _warm_up(self, loaded: _Loaded, recognizer: Recognizer) -> Iterator[None]:
        """Warm up, one batch with each step; after the last, the model is ready."""
        model, audio_seconds, busy_seconds = loaded.load.model, 0.0, 0.0
        try:
            for batch_audio, batch_seconds in recognizer.warm_up():
                audio_seconds += batch_audio
                busy_seconds += batch_seconds
                yield
        except Exception as error:
            kind = recognizer.kind_of(error)
            recognizer.release()
            self._refuse(model, error, kind)
            if kind is FailureKind.DEVICE:
                raise _DeviceLostError from error
            return
        self._recognizers[model] = recognizer
        times = {"load_seconds": loaded.ended - loaded.began, "warmup_seconds": self._clock() - loaded.ended}
        self._channel.send(recognizer.ready(rtfx=audio_seconds / busy_seconds, **times))

    def _refuse(self, model: str, error: Exception, kind: FailureKind | None = None) -> None:
        if not isinstance(error, ValueError | OSError):  # the messages of these two say what is wrong with the input
            log.error("%s could not be loaded", model, exc_info=error)
        message = str(error) or type(error).__name__
        self._channel.send(LoadFailure(model, message, kind))

    def _recognize(self, received: _Received) -> None:
        """Launch a batch, and pass it to the thread that answers."""
        began = self._clock()
        batch, recognizer, collated = received.batch, received.recognizer, received.collated
        # The model was unloaded, or loaded anew, while the batch was on its way; the callers have left.
        if recognizer is None or collated is None or recognizer is not self._recognizers.get(batch.model):
            gone = Failure(batch.number, FailureKind.BATCH, f"the model {batch.model!r} is gone")
            self._unanswered.put(lambda: gone)
            return
        if isinstance(collated, Exception):
            self._fail(batch, recognizer, collated)
            return
        try:
            recognizer.share_processors(batch.engines)
            recognized = recognizer.recognize(collated, batch.prompts, batch.decoder)
        except Exception as error:  # noqa: BLE001  # must not end the loop
            self._fail(batch, recognizer, error)
            return
        self._unanswered.put(partial(self._answer, batch, recognizer, recognized, collated.padded_seconds, began))

    def _fail(self, batch: Batch, recognizer: Recognizer, error: Exception) -> None:
        """Answer a batch with its error; the recognizer finds out whether the device survived.

        Raises:
            _DeviceLostError: if it did not.
        """
        kind = recognizer.kind_of(error)
        log.error("batch %d of %d utterances failed (%s)", batch.number, len(batch.items), kind, exc_info=error)
        failure = Failure(batch.number, kind, f"{type(error).__name__}: {error}")
        self._unanswered.put(lambda: failure)
        if kind is FailureKind.DEVICE:
            raise _DeviceLostError from error

    def _answer(
        self, batch: Batch, recognizer: Recognizer, recognized: Recognized, padded_seconds: float, began: float
    ) -> Result | None:
        """Wait for a batch that was launched at ``began``, and detokenize it; of an error the main thread learns."""
        try:
            recognized.wait()
            # The device computed the batch before this one first.
            done = self._clock()
            seconds, self._done = done - max(began, self._done), done
            return Result(batch.number, recognized.answers(), seconds, padded_seconds)
        except Exception as error:  # noqa: BLE001  # must not end this thread
            self._inbox.put(_Failed(batch, recognizer, error))
            return None


_Event = ToEngine | _Loaded | _Received | _Failed
_END = object()  # of a warm-up
