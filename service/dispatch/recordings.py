"""Transcribing recordings of any length: cut into parts, staged while there is room, answered part by part in order.

A window bounds how much audio is in memory, and callers take turns, so that hours of audio take bounded memory and
others wait behind them no longer than behind a short recording.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import Executor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from audio.samples import Samples
from audio.segment.segmenter import Segment
from service.dispatch.backlog import BacklogEntry
from service.dispatch.dispatcher import Answer, Dispatcher
from service.dispatch.errors import DeadlineExceededError, OverloadedError
from service.dispatch.identification import Identification, Identified, PartLanguages, PartTurn
from service.dispatch.rescue import Rescue, Rescued
from service.dispatch.utterance import Lane, Part
from service.dispatch.window import Window
from service.threads import in_thread
from transcripts.identified_samples import identified_samples
from transcripts.joining import Gap, Joiner, shifted
from transcripts.prompt import DEFAULT_PROMPT, Prompt
from transcripts.spoken_language import Probabilities
from transcripts.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Options:
    """How a recording is transcribed."""

    caller: str  # who takes turns with others: the name of an API key, or an upload without one
    lane: Lane  # the model, and which of its decoders
    prompt: Prompt = DEFAULT_PROMPT
    identification: Identification | None = None  # None: the prompt says the language
    # How long it may take beyond the recording's length; None: a job, which has no deadline and goes after all others.
    most_seconds: float | None = None

    @property
    def is_background(self) -> bool:
        """Whether it is a job's."""
        return self.most_seconds is None


class Cut(Protocol):
    """A recording, and where it is cut."""

    @property
    def rate(self) -> int:
        """Samples per second."""

    @property
    def samples(self) -> int:
        """Number of samples."""

    @property
    def is_whole(self) -> bool:
        """Whether it is one utterance."""

    def cuts(self) -> AsyncGenerator[Segment, None]:
        """Yield its parts in order, unless it is one utterance."""

    async def read(self, segment: Segment) -> Samples:
        """Return the samples of a part."""


@dataclass(slots=True)
class _Request:
    recording: Cut
    options: Options
    began: float  # time of the event loop
    entry: BacklogEntry
    languages: PartLanguages | None
    staged_samples: int = 0  # to the end of the last part that was begun
    answered_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return self.recording.samples / self.recording.rate

    @property
    def deadline(self) -> float | None:
        """Time of the event loop by which answers are needed."""
        most_seconds = self.options.most_seconds
        return None if most_seconds is None else self.began + most_seconds + self.seconds

    def part(self, samples: Samples, lane: Lane, prompt: Prompt = DEFAULT_PROMPT) -> Part:
        """Return a part of the recording."""
        options = self.options
        return Part(
            *(samples, lane, options.caller, self.deadline, prompt, options.is_background),
            recording_seconds=self.entry.seconds,
        )

    def turn(self) -> PartTurn | None:
        """Return the turn of the next part, if languages are identified."""
        return self.languages.next_turn() if self.languages else None


_BegunPart = tuple[asyncio.Task[Answer], Segment]


class Recordings:
    """Transcribes recordings through the dispatcher.

    Args:
        threads: threads for what takes a millisecond.
        rescue: hears speech again for which the model wrote nothing; None: nothing does.
    """

    def __init__(self, dispatcher: Dispatcher, threads: Executor, rescue: Rescue | None = None) -> None:
        self._dispatcher = dispatcher
        self.threads = threads
        self._rescue = rescue
        self._metrics = dispatcher.metrics

    async def transcribe(self, recording: Cut, options: Options) -> AsyncGenerator[Answer, None]:
        """Yield the answers of a recording's parts in order, with times from its beginning; none if all was cut away.

        Closing the generator, or cancelling the task that awaits it, drops the parts that are under way.
        Gate 1 must have let the request in, unless it is a job's.

        Raises:
            OverloadedError: at gate 2, before anything else.
            DispatchError: if a part gets no transcript; see `Dispatcher.transcribe`.
        """
        began, model = asyncio.get_running_loop().time(), options.lane.model
        admission = self._dispatcher.admission
        seconds = recording.samples / recording.rate
        with admission.accept(model, seconds, is_background=options.is_background) as entry:
            languages = PartLanguages(options.identification) if options.identification else None
            request = _Request(recording, options, began, entry, languages)
            with self._counted(request):
                if recording.is_whole:  # it is in memory already, and needs no room
                    whole = Segment(0, recording.samples)
                    yield await self._transcribe_part(request, whole, request.seconds, request.turn())
                    return
                async with aclosing(self._answers(request)) as answers:
                    async for answer in answers:
                        yield answer

    async def _answers(self, request: _Request) -> AsyncGenerator[Answer, None]:
        """Yield the answers of a recording's parts, while the next parts are cut and wait for room."""
        begun: asyncio.Queue[_BegunPart | None] = asyncio.Queue()  # None: no more will come
        under_way: set[asyncio.Task[Answer]] = set()
        beginning = asyncio.create_task(self._begin_all(request, begun, under_way))
        beginning.add_done_callback(lambda _: begun.put_nowait(None))
        joiner = Joiner()
        try:
            while (part := await begun.get()) is not None:
                answer = await _joined(joiner, request.recording.rate, *part)
                under_way.remove(part[0])
                yield answer
            await beginning
        finally:
            # All before the wait, which may be cancelled itself.
            unfinished = [beginning, *under_way]
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _begin_all(
        self,
        request: _Request,
        begun: "asyncio.Queue[_BegunPart | None]",
        under_way: "set[asyncio.Task[Answer]]",
    ) -> None:
        """Cut the recording, and start each part when it has room.

        Raises:
            DeadlineExceededError: if a part has no room in time.
        """
        window = self._dispatcher.background_window if request.options.is_background else self._dispatcher.window
        async with aclosing(request.recording.cuts()) as cuts:
            async for cut in cuts:
                room = window.acquire(cut.stop - cut.start)
                try:
                    async with asyncio.timeout_at(request.deadline):
                        await room
                except BaseException as error:
                    window.release(room)
                    if isinstance(error, TimeoutError):
                        raise DeadlineExceededError("No transcript in time.", retry_after=60) from None
                    raise
                task = self._begun(request, cut, window, room)
                under_way.add(task)
                begun.put_nowait((task, cut))

    def _begun(
        self, request: _Request, cut: Segment, window: Window, room: "asyncio.Future[None]"
    ) -> "asyncio.Task[Answer]":
        """Start a part that has its room."""
        # A part's share includes the silence before it, which gets no transcript.
        share = (cut.stop - request.staged_samples) / request.recording.rate
        request.staged_samples = cut.stop
        task = asyncio.create_task(self._transcribe_part(request, cut, share, request.turn()))
        # A callback, because a task that is cancelled before it begins never runs.
        task.add_done_callback(lambda _: window.release(room))
        return task

    async def _transcribe_part(self, request: _Request, cut: Segment, share: float, turn: PartTurn | None) -> Answer:
        options, entry, rate = request.options, request.entry, request.recording.rate
        samples, prompt, identified = await request.recording.read(cut), options.prompt, None
        if turn is not None:
            identified = await self._identified(request, samples, turn)
            prompt = prompt._replace(language=identified.part.language)
        part = request.part(samples, options.lane, prompt)
        entry.unstaged_seconds -= share
        answer = await self._dispatcher.transcribe(part)
        rescued = await self._rescued(request, part, answer.transcript)
        self._dispatcher.admission.backlog.answer(entry, share)
        request.answered_seconds += share
        self._metrics.audio_seconds.labels("ok", options.lane.model).inc(share)
        stretches = [Gap(start + cut.start / rate, stop + cut.start / rate) for start, stop in rescued.stretches]
        return Answer(
            *(shifted(rescued.transcript, cut.start / rate), answer.queue_seconds, cut.start / rate, cut.stop / rate),
            *(identified, cut, bool(rescued.transcript.text), stretches),
        )

    async def _rescued(self, request: _Request, part: Part, transcript: Transcript) -> Rescued:
        """Transcribe stretches of speech once more for which the model wrote nothing."""
        if self._rescue is None:
            return Rescued(transcript)
        model = self._dispatcher.catalog.find(part.lane.model)
        has_ctc = model is not None and model.ready is not None and "ctc" in model.ready.info.decoders
        lane = part.lane._replace(decoder="ctc") if has_ctc else part.lane

        async def again(samples: Samples) -> Transcript:
            return (await self._dispatcher.transcribe(replace(part, samples=samples, lane=lane))).transcript

        return await self._rescue.rescue(part.samples, request.recording.rate, transcript, again)

    async def _identified(self, request: _Request, samples: Samples, turn: PartTurn) -> Identified:
        """Identify the language of a part, by its beginning."""
        languages, rate = request.languages, request.recording.rate
        assert languages

        async def identifying() -> Probabilities:
            if rate == languages.rate:
                beginning = identified_samples(samples, rate, rate)
            else:  # resampling half a minute takes milliseconds
                beginning = await in_thread(self.threads, lambda: identified_samples(samples, rate, languages.rate))
            return await self._dispatcher.identify(request.part(beginning, languages.lane))

        return await turn.decide(identifying(), len(samples) / rate)

    @contextmanager
    def _counted(self, request: _Request) -> Iterator[None]:
        """Count the audio without an answer at the end: silence after the last part, or parts that were given up."""
        outcome, is_refused = "error", False
        try:
            yield
            outcome = "ok"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        except OverloadedError:  # gate 2 refused it
            is_refused = True
            raise
        finally:
            unanswered = 0.0 if is_refused else request.seconds - request.answered_seconds
            self._metrics.audio_seconds.labels(outcome, request.options.lane.model).inc(max(0.0, unanswered))


async def _joined(joiner: Joiner, rate: int, task: "asyncio.Task[Answer]", cut: Segment) -> Answer:
    """Wait for the answer of a part, and return what is final now: of its words, and of those held back before it."""
    answer = await task
    transcript = joiner.push(answer.transcript, cut.stop / rate, cut.shared / rate)
    # Words held back from the part before may begin earlier than this part.
    held = [word.start for word in transcript.words[:1] if word.start is not None]
    return replace(answer, transcript=transcript, start=min([answer.start, *held]))
