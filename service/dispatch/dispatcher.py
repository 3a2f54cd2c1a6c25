"""Accepts utterances, feeds engines, hands answers back; loses nothing that was accepted."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from service.dispatch.admission import Admission, AdmissionLimits
from service.dispatch.batcher import Batcher, BatchPolicy
from service.dispatch.errors import (
    DeadlineExceededError,
    DeviceMemoryError,
    EngineLostError,
    TranscriptionFailedError,
)
from service.dispatch.ledger import Ledger
from service.dispatch.utterance import Utterance
from service.dispatch.window import Window
from service.engine.protocol import NOTHING_ASKED, Failure, FailureKind, Prompt, Ready, Result, Transcript
from service.metrics import Metrics, length_class

log = logging.getLogger("steno.dispatch")

Samples = npt.NDArray[np.float32]

_RTFX_MEMORY = 0.8  # weight of the past in the running RTFx


class EngineLink(Protocol):
    """What the dispatcher needs of an engine."""

    name: str
    ready: Ready | None

    @property
    def free_places(self) -> int:
        """Batches it would take now."""

    def take_place(self, number: int) -> None:
        """Reserve a place for a batch."""

    async def transcribe(self, number: int, utterances: Sequence[Samples], prompts: Sequence[Prompt]) -> None:
        """Send the batch, with what is asked for in each utterance.

        Raises:
            ValueError: If it has no room.
        """


@dataclass(frozen=True, slots=True)
class Answer:
    """A transcript, and how long its audio waited for a batch."""

    transcript: Transcript
    queue_seconds: float


class Dispatcher:
    """The front's half of the work: queue, batches, replays. Lives on one event loop.

    Args:
        edges: Upper bounds of the length buckets in seconds.
        policy: The bounds of a batch; its budget and RTFx are replaced by what engines measure.
        limits: Of the two gates.
        clock: Monotonic seconds.

    Attributes:
        admission: The gates.
        window: Places for the parts of long recordings: enough for what engines hold, and a batch more.
        model: What the engine last said of its model; None until one has been ready.
    """

    def __init__(
        self,
        *,
        edges: Sequence[float],
        policy: BatchPolicy,
        limits: AdmissionLimits,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.admission = Admission(limits, turn_seconds=edges[-1])
        self.window = Window()
        self._policy = policy
        self._metrics = metrics
        self._clock = clock
        self._batcher = Batcher(edges)
        self._ledger = Ledger()
        self._engines: dict[EngineLink, float] = {}  # ready ones, with their running RTFx
        self.model: Ready | None = None
        self._accepted = 0
        self._abandoned: str | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_ready(self) -> bool:
        """An engine is ready, and new work is accepted."""
        return bool(self._engines) and not self.admission.is_draining

    def drain(self) -> None:
        """Accept nothing more; what was accepted will be answered."""
        self.admission.is_draining = True
        self._metrics.draining.set(1)

    async def transcribe(
        self, samples: Samples, caller: Hashable, deadline: float, prompt: Prompt = NOTHING_ASKED
    ) -> Answer:
        """Queue an utterance and wait for its transcript. Cancelling the call drops the utterance.

        Args:
            samples: Mono audio at the model's rate, (samples,). Both gates must have let its recording in.
            caller: Who takes turns with others.
            deadline: Time of the event loop until which an answer is of use.
            prompt: What is asked for.

        Raises:
            DeadlineExceededError: If it was not answered by then.
            EngineLostError: If the engine died with it, and its successor too.
            DeviceMemoryError: If it does not fit the device alone.
            TranscriptionFailedError: If the engine failed on it alone.
        """
        assert self.model is not None
        if self._abandoned:
            raise EngineLostError(self._abandoned)
        # Of the samples as they are sent, not of the recording before it was resampled: budgets are memory, too.
        seconds = len(samples) / self.model.sample_rate
        self._accepted += 1
        now = self._clock()
        answer: asyncio.Future[Transcript] = asyncio.get_running_loop().create_future()
        utterance = Utterance(self._accepted, samples, seconds, now, answer, caller, prompt=prompt)
        try:
            self._batcher.add(utterance)
            self._feed_engines()
            async with asyncio.timeout_at(deadline):
                transcript = await answer
            return Answer(transcript, utterance.sent - now)
        except TimeoutError:
            self._metrics.queue_dropped.labels("expired").inc()
            raise DeadlineExceededError("No transcript in time.", retry_after=60) from None
        except asyncio.CancelledError:
            self._metrics.queue_dropped.labels("cancelled").inc()
            raise
        finally:
            self._batcher.remove(utterance)

    def update_gauges(self) -> None:
        """Set the gauges of the queue to what is now; they change too often to be kept up to date all the time."""
        batcher, metrics = self._batcher, self._metrics
        oldest = batcher.oldest_arrival
        metrics.queue_depth.set(len(batcher))
        metrics.queue_audio_seconds.set(batcher.audio_seconds + self.admission.unstaged_seconds)
        metrics.queue_oldest_age.set(0.0 if oldest is None else self._clock() - oldest)
        metrics.queue_predicted_wait.set(self.admission.predicted_wait)
        metrics.queue_passed_over.set(max((utterance.passed_over for utterance in batcher), default=0))

    def abandon(self, reason: str) -> None:
        """No engine will come any more: answer what waits with an error, and what engines hold when they end."""
        self._abandoned = reason
        for utterance in list(self._batcher):
            self._give_up(utterance, reason)

    # What the supervisor tells (service/engine/supervisor.py, EngineListener).

    def engine_started(self, engine: EngineLink) -> None:
        """A process was started; it is not ready."""
        self._metrics.worker_up.labels(engine.name).set(0)
        self._metrics.worker_start.labels(engine.name).set_to_current_time()

    def engine_ready(self, engine: EngineLink, ready: Ready) -> None:
        """Batches may be sent to it."""
        self._engines[engine] = ready.rtfx
        self.model = ready
        self._update_rtfx()
        self._size_window()
        self.admission.loading_seconds = ready.load_seconds + ready.warmup_seconds
        self._metrics.worker_up.labels(engine.name).set(1)
        self._metrics.model_load_seconds.set(ready.load_seconds)
        self._metrics.warmup_seconds.set(ready.warmup_seconds)
        labels = (str(ready.info.get(key)) for key in ("model", "family", "dtype", "device"))
        self._metrics.model_info.labels(*labels).set(1)
        self._feed_engines()

    def engine_heard(self, engine: EngineLink) -> None:
        """It gave a sign of life."""
        self._metrics.worker_heartbeat.labels(engine.name).set_to_current_time()

    def engine_answered(self, engine: EngineLink, answer: Result | Failure) -> None:
        """A batch is done; its place is free."""
        assert answer.number is not None
        utterances = self._ledger.take_back(engine, answer.number)
        if not utterances:
            return  # the engine was given up as lost, and its work replayed
        if isinstance(answer, Result):
            self._complete(engine, utterances, answer)
        else:
            self._split(utterances, answer)
        self._feed_engines()

    def engine_lost(self, engine: EngineLink, loss: str) -> None:
        """It is gone: what it had not answered is replayed once, each utterance alone.

        Alone, because one of them may be the cause: its neighbours must not die with it a second time.
        """
        self._engines.pop(engine, None)
        self._update_rtfx()
        self._metrics.worker_up.labels(engine.name).set(0)
        if loss != "stopped":
            self._metrics.worker_restarts.labels(loss).inc()
        for batch in self._ledger.lose(engine):
            self._metrics.batches.labels("lost").inc()
            for utterance in batch:
                utterance.engines_lost += 1
                if self._abandoned or utterance.engines_lost > 1:
                    self._give_up(utterance, self._abandoned or "The engine was lost twice with this request.")
                else:
                    self._run_alone(utterance)
        self._feed_engines()

    def _feed_engines(self) -> None:
        """Form a batch for every free place while anything waits: nobody waits for company."""
        for engine, rtfx in self._engines.items():
            assert engine.ready is not None
            policy = replace(self._policy, batch_seconds=engine.ready.batch_seconds, rtfx=rtfx)
            while engine.free_places > 0 and (batch := self._batcher.next_batch(self._clock(), policy)):
                self._send(engine, batch)

    def _send(self, engine: EngineLink, batch: list[Utterance]) -> None:
        number = self._ledger.hand_over(engine, batch)
        engine.take_place(number)
        now = self._clock()
        for utterance in batch:
            utterance.sent = now
            self._metrics.queue_wait.labels(length_class(utterance.seconds)).observe(now - utterance.arrived)
        task = asyncio.create_task(self._deliver(engine, number, batch))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, engine: EngineLink, number: int, batch: list[Utterance]) -> None:
        try:
            samples, prompts = [utterance.samples for utterance in batch], [utterance.prompt for utterance in batch]
            await engine.transcribe(number, samples, prompts)
        except ValueError as error:  # a bug of ours, but those who wait must be answered
            log.exception("batch could not be sent", extra={"utterances": len(batch)})
            self.engine_answered(engine, Failure(number, FailureKind.BATCH, str(error)))

    def _complete(self, engine: EngineLink, utterances: list[Utterance], result: Result) -> None:
        for utterance, transcript in zip(utterances, result.transcripts, strict=True):
            if not utterance.answer.done():
                utterance.answer.set_result(transcript)
        audio = sum(utterance.seconds for utterance in utterances)
        if engine in self._engines and result.infer_seconds > 0:
            measured = audio / result.infer_seconds
            self._engines[engine] = _RTFX_MEMORY * self._engines[engine] + (1 - _RTFX_MEMORY) * measured
            self._update_rtfx()
        metrics = self._metrics
        metrics.batches.labels("ok").inc()
        metrics.batch_items.observe(len(utterances))
        metrics.batch_padded_seconds.observe(result.padded_seconds)
        metrics.batch_audio_seconds.inc(audio)
        metrics.batch_padding_seconds.inc(max(0.0, result.padded_seconds - audio))
        metrics.batch_duration.observe(result.infer_seconds)
        metrics.worker_busy_seconds.labels(engine.name).inc(result.infer_seconds)

    def _split(self, utterances: list[Utterance], failure: Failure) -> None:
        """One bad utterance must not fail its neighbours: each of a failed batch runs again by itself."""
        out_of_memory = failure.kind is FailureKind.OUT_OF_MEMORY
        self._metrics.batches.labels("oom" if out_of_memory else "error").inc()
        if out_of_memory:
            self._metrics.out_of_memory.inc()
        if len(utterances) > 1:
            for utterance in utterances:
                self._run_alone(utterance)
            return
        error: Exception = (
            DeviceMemoryError("This audio does not fit the device, even alone.")
            if out_of_memory
            else TranscriptionFailedError("The engine failed on this audio.")
        )
        for utterance in utterances:
            if not utterance.answer.done():
                utterance.answer.set_exception(error)

    def _run_alone(self, utterance: Utterance) -> None:
        """Let a suspect run again by itself, if anybody still waits for it."""
        utterance.alone = True
        if not utterance.answer.done():
            self._batcher.add(utterance)

    def _give_up(self, utterance: Utterance, message: str) -> None:
        self._metrics.queue_dropped.labels("worker_lost").inc()
        self._batcher.remove(utterance)
        if not utterance.answer.done():
            utterance.answer.set_exception(EngineLostError(message))

    def _size_window(self) -> None:
        batches = ((engine.ready, engine.ready.places + 1) for engine in self._engines if engine.ready)
        self.window.samples = sum(int(ready.batch_seconds * ready.sample_rate) * places for ready, places in batches)

    def _update_rtfx(self) -> None:
        """While no engine is ready, the last known speed still tells how long the backlog will take."""
        if self._engines:
            self.admission.rtfx = sum(self._engines.values())
