"""The life of an engine process: load, warm up, answer batches until told to stop.

What recognises speech is behind `Recognizer`, so this loop runs without torch, and the stub engine of the tests is
the real process with another recogniser in it.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from service import logs
from service.engine.channel import EngineChannel
from service.engine.download import DownloadReport, OnDownload
from service.engine.protocol import Batch, Failure, FailureKind, Heartbeat, Load, Prompt, Ready, Result, Transcript
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

    def warm_up(self) -> float:
        """Run every bucket once, the largest first, and return the RTFx seen."""

    def transcribe(self, utterances: Sequence[Samples], prompts: Sequence[Prompt]) -> tuple[list[Transcript], float]:
        """Return the transcripts of one batch, each as its prompt asks for it, and its padded audio-seconds."""

    def kind_of(self, error: Exception) -> FailureKind:
        """Say whether the device can be trusted after this error."""


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
        status = serve(channel, StagingView(arguments.memory), load, started)
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


def serve(channel: EngineChannel, staging: StagingView, load: Loader, started: float) -> int:
    """Answer messages until `Stop`, the end of the stream or a fatal error; returns the exit status."""
    recognizer: Recognizer | None = None
    for message in channel.messages():
        match message:
            case Load():
                recognizer = _load(channel, message, load, started)
                if recognizer is None:
                    return 1
            case Batch() if recognizer is not None:
                answer = _transcribe(recognizer, staging, message)
                channel.send(answer)
                if isinstance(answer, Failure) and answer.kind is FailureKind.DEVICE:
                    return 1
            case _:
                break
    return 0


def _load(channel: EngineChannel, message: Load, load: Loader, started: float) -> Recognizer | None:
    try:
        recognizer = load(message, DownloadReport(message.model, channel.send))
        loaded = time.monotonic()
        rtfx = recognizer.warm_up()
    except Exception as error:  # whatever it is, the front must hear why there is no engine
        if not isinstance(error, ValueError | OSError):  # those two say in one line what is wrong with the input
            log.exception("the engine could not start")
        channel.send(Failure(None, FailureKind.LOAD, str(error) or type(error).__name__))
        return None
    channel.send(
        Ready(
            info=recognizer.info,
            spellings=list(recognizer.spellings),
            sample_rate=recognizer.sample_rate,
            batch_seconds=recognizer.batch_seconds,
            places=recognizer.places,
            rtfx=rtfx,
            load_seconds=loaded - started,
            warmup_seconds=time.monotonic() - loaded,
        )
    )
    return recognizer


def _transcribe(recognizer: Recognizer, staging: StagingView, batch: Batch) -> Result | Failure:
    began = time.monotonic()
    try:
        transcripts, padded_seconds = recognizer.transcribe([staging.read(item) for item in batch.items], batch.prompts)
        return Result(batch.number, transcripts, time.monotonic() - began, padded_seconds)
    except Exception as error:  # one batch must not end the loop; the recogniser says if the device survived
        kind = recognizer.kind_of(error)
        log.exception("batch %d of %d utterances failed (%s)", batch.number, len(batch.items), kind)
        return Failure(batch.number, kind, f"{type(error).__name__}: {error}")
