"""The life of an engine process: load models, warm them up, answer batches until told to stop.

A thread loads, so that batches for the models that are there already go on; a model's warm-up runs between them, bucket
by bucket. The device itself is used by one thread only.

What recognises speech is behind `Recognizer`, so this loop runs without torch, and the stub engine of the tests is
the real process with another recogniser in it.
"""

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

HEARTBEAT_SECONDS = 1.0

log = logging.getLogger("steno.engine")


class Recognizer(Protocol):
    """A loaded model on its device."""

    info: dict[str, Any]
    spellings: Sequence[bytes]
    sample_rate: int
    batch_seconds: float
    places: int
    weight_bytes: int

    def warm_up(self) -> Iterator[tuple[float, float]]:
        """Run a bucket a step, the largest first; yields its audio-seconds and its seconds."""

    def transcribe(
        self, utterances: Sequence[Samples], prompts: Sequence[Prompt], decoder: str | None
    ) -> tuple[list[Transcript], float]:
        """Return the transcripts of one batch, each as its prompt asks for it, and its padded audio-seconds."""

    def kind_of(self, error: Exception) -> FailureKind:
        """Say whether the device can be trusted after this error."""

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
    channel = EngineChannel(socket.socket(fileno=arguments.socket))
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    try:
        status = Loop(channel, StagingView(arguments.memory), load, started).run()
    except OSError:
        status = 0  # the front is gone, nobody is left to answer
    sys.stderr.flush()
    # Without the interpreter's clean-up: a device that hangs while it is released must not keep the process.
    os._exit(status)


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


class _DeviceLostError(Exception):
    """The device can no longer be trusted."""


class Loop:
    """Does what the front says until it says `Stop`, its end of the stream closes, or the device is lost.

    Args:
        channel: To the front.
        staging: Where the audio of batches lies.
        loader: Loads a model.
        started: Monotonic time at which the process began; the first model's loading time counts from there.
    """

    def __init__(self, channel: EngineChannel, staging: StagingView, loader: Loader, started: float) -> None:
        self._channel = channel
        self._staging = staging
        self._loader = loader
        self._started: float | None = started
        self._inbox: queue.SimpleQueue[ToEngine | _Arrival | None] = queue.SimpleQueue()
        self._recognizers: dict[str, Recognizer] = {}
        self._to_load: deque[_Arrival] = deque()
        self._is_loading = False
        self._warming: deque[_Arrival] = deque()

    def run(self) -> int:
        """Return the exit status."""
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while (event := self._next_event()) is not None and not isinstance(event, Stop):
                self._handle(event)
        except _DeviceLostError:
            return 1
        return 0

    def _listen(self) -> None:
        try:
            for message in self._channel.messages():
                self._inbox.put(message)
        finally:
            self._inbox.put(None)

    def _next_event(self) -> ToEngine | _Arrival | None:
        """Wait for what comes next; while nothing does, warm up what is loaded."""
        while self._warming:
            try:
                return self._inbox.get_nowait()
            except queue.Empty:
                self._warm_up(self._warming[0])
        return self._inbox.get()

    def _handle(self, event: ToEngine | _Arrival) -> None:
        match event:
            case Load():
                self._to_load.append(_Arrival(event, self._started or time.monotonic()))
                self._started = None
                self._load_next()
            case _Arrival():
                self._is_loading = False
                self._take_in(event)
                self._load_next()
            case Unload():
                if recognizer := self._recognizers.pop(event.model, None):
                    recognizer.release()
            case Batch():
                answer = self._transcribe(event)
                self._channel.send(answer)
                if isinstance(answer, Failure) and answer.kind is FailureKind.DEVICE:
                    raise _DeviceLostError

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
        arrival.loaded = time.monotonic()
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
                warmup_seconds=time.monotonic() - arrival.loaded,
            )
        )

    def _refuse(self, arrival: _Arrival, error: Exception) -> None:
        if not isinstance(error, ValueError | OSError):  # those two say in one line what is wrong with the input
            log.error("%s could not be loaded", arrival.load.model, exc_info=error)
        message = str(error) or type(error).__name__
        self._channel.send(Failure(None, FailureKind.LOAD, message, arrival.load.model))

    def _transcribe(self, batch: Batch) -> Result | Failure:
        began = time.monotonic()
        recognizer = self._recognizers.get(batch.model)
        if recognizer is None:  # whoever asked has left, and the model went while the batch was on its way
            return Failure(batch.number, FailureKind.BATCH, f"the model {batch.model!r} is gone")
        try:
            utterances = [self._staging.read(item) for item in batch.items]
            transcripts, padded_seconds = recognizer.transcribe(utterances, batch.prompts, batch.decoder)
            return Result(batch.number, transcripts, time.monotonic() - began, padded_seconds)
        except Exception as error:  # one batch must not end the loop; the recogniser says if the device survived
            kind = recognizer.kind_of(error)
            log.exception("batch %d of %d utterances failed (%s)", batch.number, len(batch.items), kind)
            return Failure(batch.number, kind, f"{type(error).__name__}: {error}")
