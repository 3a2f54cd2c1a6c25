"""The dispatcher: queues utterances, sends batches to engines, returns transcripts; loses nothing that was accepted."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from audio.samples import Samples
from audio.segment.segmenter import Segment
from service.dispatch.admission import Admission, AdmissionLimits
from service.dispatch.batcher import Batcher, BatchPolicy, Budget
from service.dispatch.catalog import Catalog
from service.dispatch.counts import RequestCounts
from service.dispatch.errors import (
    DeadlineExceededError,
    DeviceMemoryError,
    DispatchError,
    DrainingError,
    EngineLostError,
    TranscriptionFailedError,
)
from service.dispatch.identification import Identified
from service.dispatch.utterance import Part, Utterance
from service.dispatch.window import Window
from service.engine.protocol import Batch, Failure, FailureKind, Ready, Result
from service.engine.shapes import computed_seconds
from service.engine.supervisor import Engine
from service.metrics import Metrics, length_class
from transcripts.joining import Gap
from transcripts.spoken_language import Probabilities
from transcripts.transcript import Transcript

log = logging.getLogger("steno.dispatch")

# An utterance that was in this number of batches that did not fit runs alone: it may be the cause.
_MOST_MISFITS = 3
_RTFX_MEMORY = 0.8  # weight of the past in the moving average of RTFx


_NO_CUT = Segment(0, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for an utterance."""

    transcript: Transcript
    queue_seconds: float  # how long the utterance waited for a batch
    start: float = 0.0  # where it begins, in seconds of its recording
    end: float = math.inf  # where it ends
    identified: Identified | None = None  # its language, if that was identified
    cut: Segment = _NO_CUT  # the part of the recording, in samples
    has_text: bool = False  # whether the model wrote anything for it; joining may have moved its words to a neighbour
    rescued: Sequence[Gap] = ()  # its stretches that had speech and no words until they were transcribed again

    @property
    def identify_seconds(self) -> float:
        """How long it took to identify its language; 0 if that was not done."""
        return self.identified.seconds if self.identified else 0.0


@dataclass(slots=True)
class _Loaded:
    """A model of an engine: its RTFx, averaged over its batches, and what a batch may have."""

    rtfx: float
    budget: Budget


@dataclass(slots=True)
class _Work:
    """What an engine has: its ready models, and the batches that it holds, by number."""

    models: dict[str, _Loaded] = field(default_factory=dict)
    batches: dict[int, list[Utterance]] = field(default_factory=dict)

    @property
    def held(self) -> list[Utterance]:
        """The utterances of all its batches."""
        return [utterance for batch in self.batches.values() for utterance in batch]


class Dispatcher:
    """Queue, batches and replays in the front process. Runs on one event loop.

    Args:
        edges: upper bounds of the length buckets in seconds.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        edges: Sequence[float],
        limits: AdmissionLimits,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        counts: RequestCounts | None = None,
    ) -> None:
        self.catalog = catalog
        self.admission = Admission(limits, edges[-1], counts, clock)
        # Room for parts of long recordings: what engines hold, and a batch more for each. Jobs have their own, so that
        # they do not wait in front of other recordings.
        self.window, self.background_window = Window(), Window()
        self.metrics = metrics
        self._clock = clock
        self._batcher = Batcher(edges)
        self._engines: dict[Engine, _Work] = {}  # those that are ready
        self._batches = 0
        self._accepted = 0
        self._abandoned: Callable[[], DispatchError] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether an engine is running, the models of the settings are loaded, and new work is accepted."""
        return bool(self._engines) and self.catalog.is_ready and not self.admission.is_draining

    @property
    def is_abandoned(self) -> bool:
        """Whether no engine will start any more."""
        return self._abandoned is not None

    def drain(self) -> None:
        """Accept nothing more; accepted requests will be answered."""
        self.admission.is_draining = True
        self.metrics.draining.set(1)

    async def transcribe(self, part: Part) -> Answer:
        """Queue a part and wait for its transcript. Cancelling the call drops it.

        Both gates must have accepted its recording, and its lane's model must have been ready.

        Raises:
            DeadlineExceededError: if it was not answered by its deadline.
            DrainingError: if the service stopped first.
            EngineLostError: if two engines died with it, or none will have its model any more.
            DeviceMemoryError: if it does not fit the device alone.
            TranscriptionFailedError: if the engine failed on it alone.
        """
        transcript, queue_seconds = await self._submit(part)
        assert isinstance(transcript, Transcript)
        return Answer(transcript, queue_seconds)

    async def identify(self, part: Part) -> Probabilities:
        """Queue a part for a language identifier, and wait for the probability of each language; see ``transcribe``."""
        probabilities, _ = await self._submit(part)
        assert isinstance(probabilities, dict)
        return probabilities

    async def _submit(self, part: Part) -> tuple[Transcript | Probabilities, float]:
        """Return the engine's answer for a part, and how long it waited for a batch."""
        if self._abandoned:
            raise self._abandoned()
        lane = part.lane
        if lane.model not in self.catalog:
            raise EngineLostError(f"The model {lane.model!r} was lost.")
        model = self.catalog[lane.model].ready
        assert model is not None
        # Of the samples that are sent: a budget bounds their memory, and resampling may have added a few.
        seconds = len(part.samples) / model.sample_rate
        self._accepted += 1
        now = self._clock()
        answer: asyncio.Future[Transcript | Probabilities] = asyncio.get_running_loop().create_future()
        utterance = Utterance(self._accepted, part, seconds, now, answer)
        try:
            self._batcher.add(utterance)
            self._feed_engines()
            async with asyncio.timeout_at(part.deadline):
                return await answer, utterance.sent - now
        except TimeoutError:
            self.metrics.queue_dropped.labels("expired").inc()
            raise DeadlineExceededError("No transcript in time.", retry_after=60) from None
        except asyncio.CancelledError:
            self.metrics.queue_dropped.labels("cancelled").inc()
            raise
        finally:
            if self._batcher.remove(utterance) and utterance.engines_lost:
                self._feed_engines()  # others may have waited behind it, if it needed an engine to itself

    def update_gauges(self) -> None:
        """Set the gauges of the queue, when metrics are scraped; they change too often to be set at each change."""
        metrics, waiting, now = self.metrics, list(self._batcher), self._clock()
        for model in self.catalog:
            of_model = [utterance.seconds for utterance in waiting if utterance.part.lane.model == model.id]
            metrics.queue_depth.labels(model.id).set(len(of_model))
            audio = sum(of_model) + self.admission.backlog.unstaged_seconds(model.id)
            metrics.queue_audio_seconds.labels(model.id).set(audio)
        metrics.queue_oldest_age.set(now - min((utterance.arrived for utterance in waiting), default=now))
        metrics.queue_predicted_wait.set(self.admission.predicted_wait)

    def abandon(self, error: Callable[[], DispatchError]) -> None:
        """Fail what waits, because no engine will start any more; what engines hold fails if they do not answer it."""
        self._abandoned = error
        for utterance in list(self._batcher):
            self._give_up(utterance, error())

    # Calls of the supervisor (service/engine/supervisor.py, EngineListener).

    def engine_started(self, engine: Engine) -> None:
        """An engine process was started; it has no model yet."""
        self.metrics.engine_up.labels(engine.name).set(0)

    def engine_ready(self, engine: Engine, ready: Ready) -> None:
        """An engine has loaded a model; batches for it may be sent."""
        work = self._engines.setdefault(engine, _Work())
        work.models[ready.model] = _Loaded(ready.rtfx, Budget(ready.batch_seconds))
        self.admission.is_loaded = True  # before the catalog tells that a model is ready
        self.catalog.ready(ready)
        self._update_rtfx()
        self._size_window()
        self.admission.loading_seconds = ready.load_seconds + ready.warmup_seconds
        self.metrics.engine_up.labels(engine.name).set(1)
        self.metrics.describe_model(ready)
        self._feed_engines()

    def model_lost(self, model: str, reason: str) -> None:
        """The successor of a lost engine cannot load a model; other engines may have it."""
        if not any(model in work.models for work in self._engines.values()):
            self.give_up_model(model, reason)

    def give_up_model(self, model: str, reason: str) -> None:
        """Fail all utterances that wait for a model, and remove it, because no engine will have it any more."""
        for utterance in [waiting for waiting in self._batcher if waiting.part.lane.model == model]:
            self._give_up(utterance, EngineLostError(f"The model {model!r} was lost: {reason}"))
        self.forget(model)

    def forget(self, model: str) -> None:
        """Remove a model that nothing waits for."""
        for work in self._engines.values():
            work.models.pop(model, None)
        self.catalog.remove(model)
        self.admission.rtfx.pop(model, None)
        self._size_window()
        self.metrics.forget_model(model)

    def engine_heartbeat(self, engine: Engine) -> None:
        """An engine gave a sign of life."""
        self.metrics.engine_heartbeat.labels(engine.name).set_to_current_time()

    def engine_answered(self, engine: Engine, answer: Result | Failure) -> None:
        """A batch is done; its slot is free."""
        work = self._engines.get(engine)
        utterances = work.batches.pop(answer.number, None) if work else None
        if not utterances:
            return  # the engine was lost before, and its batches were replayed
        if isinstance(answer, Result):
            try:
                answers = list(zip(utterances, answer.answers, strict=True))
            except Exception:  # not an answer for each, or arrays that do not fit: a bug of the engine
                log.exception("answers cannot be read", extra={"utterances": len(utterances)})
                answer = Failure(answer.number, FailureKind.BATCH, "not an answer for each utterance")
            else:
                self._complete(engine, answers, answer)
        if isinstance(answer, Failure):
            self._split(engine, utterances, answer)
        self._feed_engines()

    def engine_lost(self, engine: Engine, loss: str) -> None:
        """An engine is gone: its unanswered utterances are replayed once, each alone, with an engine to itself.

        Alone, because one of them may be the cause: it must not take others down a second time.
        """
        work = self._engines.pop(engine, _Work())
        self._update_rtfx()
        self.metrics.engine_up.labels(engine.name).set(0)
        if loss != "stopped":
            self.metrics.engine_restarts.labels(loss).inc()
        for batch in work.batches.values():
            self.metrics.batches.labels("lost", batch[0].part.lane.model).inc()
            for utterance in batch:
                utterance.engines_lost += 1
                if utterance.engines_lost > 1 and not self._abandoned:
                    self._give_up(utterance, EngineLostError("The engine was lost twice with this request."))
                else:
                    self._run_alone(utterance)
        self._feed_engines()

    def _feed_engines(self) -> None:
        """Form a batch for every free slot while anything waits, however small the batch is; idle engines first."""
        # All are asked again after each batch: a suspect that had to wait for an idle engine may be gone with it.
        while any(self._feed(engine) for engine in sorted(self._engines, key=lambda engine: -engine.free_slots)):
            pass

    def _feed(self, engine: Engine) -> bool:
        """Send the next batch to an engine; return whether there was one that it takes."""
        work = self._engines[engine]
        held = work.held
        if engine.free_slots <= 0 or any(one.engines_lost for one in held):  # a suspect has the engine to itself
            return False
        policies = {
            model: BatchPolicy(loaded.budget.seconds, engine.models[model].padded_seconds, loaded.rtfx)
            for model, loaded in work.models.items()
        }
        batch = self._batcher.next_batch(self._clock(), policies, is_idle=not held)
        if batch:
            self._send(engine, batch)
        return bool(batch)

    def _send(self, engine: Engine, utterances: list[Utterance]) -> None:
        self._batches += 1
        self._engines[engine].batches[self._batches] = utterances
        engine.take_slot(self._batches)
        now = self._clock()
        for utterance in utterances:
            utterance.sent = now
            self.metrics.queue_wait.labels(length_class(utterance.seconds)).observe(now - utterance.arrived)
        engines = sum(bool(work.batches) for work in self._engines.values())
        parts = [utterance.part for utterance in utterances]
        batch = Batch(self._batches, *parts[0].lane, [part.prompt for part in parts], engines)
        task = asyncio.create_task(self._deliver(engine, batch, [part.samples for part in parts]))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, engine: Engine, batch: Batch, utterances: list[Samples]) -> None:
        try:
            await engine.send(batch, utterances)
        except Exception as error:  # no memory, or a bug of ours, but callers must be answered
            log.exception("batch could not be sent", extra={"utterances": len(utterances)})
            self.engine_answered(engine, Failure(batch.number, FailureKind.BATCH, str(error)))

    def _complete(
        self, engine: Engine, answers: list[tuple[Utterance, Transcript | Probabilities]], result: Result
    ) -> None:
        utterances = [utterance for utterance, _ in answers]
        for utterance, answer in answers:
            if not utterance.answer.done():
                utterance.answer.set_result(answer)
        audio = sum(utterance.seconds for utterance in utterances)
        model = utterances[0].part.lane.model
        if loaded := self._engines[engine].models.get(model):
            loaded.budget.fit(result.padded_seconds)
            if result.infer_seconds > 0:
                loaded.rtfx = _RTFX_MEMORY * loaded.rtfx + (1 - _RTFX_MEMORY) * audio / result.infer_seconds
                self._update_rtfx()
        metrics = self.metrics
        metrics.batches.labels("ok", model).inc()
        metrics.batch_items.labels(model).observe(len(utterances))
        metrics.batch_padded_seconds.labels(model).observe(result.padded_seconds)
        metrics.batch_audio_seconds.labels(model).inc(audio)
        metrics.batch_padding_seconds.labels(model).inc(max(0.0, result.padded_seconds - audio))
        metrics.batch_duration.labels(model).observe(result.infer_seconds)
        metrics.engine_busy_seconds.labels(engine.name).inc(result.infer_seconds)

    def _split(self, engine: Engine, utterances: list[Utterance], failure: Failure) -> None:
        """Run the utterances of a failed batch again; one that was alone gets an error."""
        out_of_memory = failure.kind is FailureKind.OUT_OF_MEMORY
        outcome = "oom" if out_of_memory else "error"
        self.metrics.batches.labels(outcome, utterances[0].part.lane.model).inc()
        if out_of_memory:
            self.metrics.out_of_memory.inc()
        if len(utterances) > 1 and out_of_memory:
            self._make_smaller(engine, utterances)
        elif len(utterances) > 1:
            for utterance in utterances:
                self._run_alone(utterance)
        elif not utterances[0].answer.done():
            error: Exception = TranscriptionFailedError("The engine failed on this audio.")
            if out_of_memory:
                error = DeviceMemoryError("This audio does not fit the device, even alone.")
            utterances[0].answer.set_exception(error)

    def _make_smaller(self, engine: Engine, utterances: list[Utterance]) -> None:
        """Run utterances again in smaller batches, or alone after several batches that did not fit."""
        model, longest = utterances[0].part.lane.model, max(utterance.seconds for utterance in utterances)
        if loaded := self._engines[engine].models.get(model):
            padded = len(utterances) * computed_seconds(longest, engine.models[model].padded_seconds)
            loaded.budget.misfit(padded)
            extra = {"device": engine.name, "model": model, "padded_seconds": padded, "budget": loaded.budget.seconds}
            log.warning("a batch did not fit the device", extra=extra)
        for utterance in utterances:
            utterance.misfits += 1
            if utterance.misfits >= _MOST_MISFITS or loaded is None:
                self._run_alone(utterance)
            else:
                self._run_again(utterance)

    def _run_alone(self, utterance: Utterance) -> None:
        """Run a suspect utterance again alone, if its caller still waits."""
        utterance.alone = True
        self._run_again(utterance)

    def _run_again(self, utterance: Utterance) -> None:
        if self._abandoned:
            self._give_up(utterance, self._abandoned())
        elif utterance.part.lane.model not in self.catalog:
            self._give_up(utterance, EngineLostError(f"The model {utterance.part.lane.model!r} was lost."))
        elif not utterance.answer.done():
            self._batcher.add(utterance)

    def _give_up(self, utterance: Utterance, error: DispatchError) -> None:
        self._batcher.remove(utterance)
        if not utterance.answer.done():
            self.metrics.queue_dropped.labels("draining" if isinstance(error, DrainingError) else "engine_lost").inc()
            utterance.answer.set_exception(error)

    def _size_window(self) -> None:
        """Make room for the batches that each engine may hold, and one more, of the model whose batches are largest."""
        self.window.samples = self.background_window.samples = sum(
            max(int(ready.batch_seconds * ready.sample_rate) * (ready.slots + 1) for ready in engine.models.values())
            for engine in self._engines
            if engine.models
        )

    def _update_rtfx(self) -> None:
        """Set each model's RTFx of all engines together; while none has it, its last one stays, to predict waits."""
        for model in self.catalog:
            of_model = (work.models.get(model.id) for work in self._engines.values())
            if speeds := [loaded.rtfx for loaded in of_model if loaded]:
                self.admission.rtfx[model.id] = sum(speeds)
