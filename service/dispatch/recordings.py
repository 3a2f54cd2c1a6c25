"""Transcribing recordings of any length: cut into parts, staged while there is room, answered part by part in order.

A window bounds how much audio is in memory, and callers take turns, so that hours of audio take bounded memory and
others wait behind them no longer than behind a short recording.
"""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace

from audio.samples import Samples
from audio.segment.segmenter import Segment
from models.identified_samples import identified_samples
from models.joining import Joiner, shifted
from models.prompt import DEFAULT_PROMPT, Prompt
from models.spoken_language import Probabilities
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.errors import DeadlineExceededError, OverloadedError
from service.dispatch.identification import Identification, Identified, PartLanguages, PartTurn
from service.dispatch.queue import AcceptedRecording, PartWindow, Queue
from service.dispatch.utterance import Lane, Part
from service.metrics import Metrics
from service.threads import in_thread


@dataclass(slots=True)
class _Request:
    cut_recording: CutRecording
    caller: Hashable
    lane: Lane
    prompt: Prompt
    began: float  # time of the event loop
    most_seconds: float | None  # that it may take in addition to the length of the recording; None: no deadline
    accepted: AcceptedRecording
    languages: PartLanguages | None
    staged_samples: int = 0  # to the end of the last part that was begun
    answered_seconds: float = 0.0

    @property
    def deadline(self) -> float | None:
        """Time of the event loop by which answers are needed; it moves while the recording grows."""
        if self.most_seconds is None:
            return None
        growth, since = self.cut_recording.growth, self.began
        if growth is not None:
            since = asyncio.get_running_loop().time() if growth.ended is None else growth.ended
        return since + self.most_seconds + self.cut_recording.recording.seconds


_BegunPart = tuple[asyncio.Task[Answer], Segment]


class Recordings:
    """Transcribes recordings through the queue.

    Args:
        queue: where their parts get transcripts.
        timeout: seconds that a recording may take in addition to its own length.
    """

    def __init__(self, queue: Queue, *, timeout: float, metrics: Metrics) -> None:
        self._queue = queue
        self._timeout = timeout
        self._metrics = metrics

    def accept(self, seconds: float, lane: Lane) -> AbstractAsyncContextManager[AcceptedRecording]:
        """Gate 2 for a recording that is still arriving, and has this length so far.

        Raises:
            OverloadedError: if it would wait too long, or exceed the limit on queued audio, or if it or another would
                not be done in time.
        """
        return self._queue.accept(lane.model, seconds, is_single=False, is_background=False)

    async def transcribe(
        self,
        cut_recording: CutRecording,
        caller: Hashable,
        lane: Lane,
        prompt: Prompt = DEFAULT_PROMPT,
        *,
        identification: Identification | None = None,
        accepted: AcceptedRecording | None = None,
        waited_seconds: float = 0.0,
        is_background: bool = False,
    ) -> AsyncGenerator[Answer, None]:
        """Yield the answers of a recording's parts in order, with times from its beginning; none if all was cut away.

        Closing the generator, or cancelling the task that awaits it, drops the parts that are under way.

        Args:
            cut_recording: the recording. Gate 1 must have let its request in, unless it is a job's.
            caller: who takes turns with others.
            lane: the model, and which of its decoders.
            prompt: the prompt of every part.
            identification: identifies the language that each part is transcribed in; None: the prompt says it.
            accepted: the recording, if gate 2 has accepted it already.
            waited_seconds: seconds that it waited for its model, which count in its deadline.
            is_background: whether it is a job's: it goes after all others, and has no deadline.

        Raises:
            OverloadedError: at gate 2, before anything else.
            DispatchError: if a part gets no transcript; see `Dispatcher.transcribe`.
        """
        seconds, began = cut_recording.recording.seconds, asyncio.get_running_loop().time()
        most_seconds = None if is_background else self._timeout - waited_seconds
        is_single = cut_recording.is_whole and identification is None
        queued: AbstractAsyncContextManager[AcceptedRecording] = (
            nullcontext(accepted)
            if accepted
            else self._queue.accept(lane.model, seconds, is_single=is_single, is_background=is_background)
        )
        async with queued as queued_recording:
            languages = PartLanguages(identification) if identification else None
            request = _Request(*(cut_recording, caller, lane, prompt, began, most_seconds, queued_recording, languages))
            with self._counted(request):
                if cut_recording.is_whole:
                    yield await self._transcribe_whole(request)
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
                answer = await _joined(joiner, request.cut_recording, *part)
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
        window = request.accepted.window
        async with aclosing(request.cut_recording.cuts()) as cuts:
            async for cut in cuts:
                room = window.acquire(cut.stop - cut.start)
                try:
                    await _until(room, request.deadline)
                except BaseException:
                    window.release(room)
                    raise
                task = self._begun(request, cut, window, room)
                under_way.add(task)
                begun.put_nowait((task, cut))

    async def _transcribe_whole(self, request: _Request) -> Answer:
        """Transcribe a recording that is one utterance; it is in memory already, and needs no room."""
        cut_recording = request.cut_recording
        whole = Segment(0, len(cut_recording.recording))
        answer = await self._transcribe_part(request, whole, cut_recording.recording.seconds, _turn(request))
        cut_recording.note_answer(whole, has_text=bool(answer.transcript.text))
        return answer

    def _begun(
        self, request: _Request, cut: Segment, window: PartWindow, room: "asyncio.Future[None]"
    ) -> "asyncio.Task[Answer]":
        """Start a part that has its room."""
        # A part's share includes the silence before it, which gets no transcript.
        share = (cut.stop - request.staged_samples) / request.cut_recording.recording.rate
        request.staged_samples = cut.stop
        task = asyncio.create_task(self._transcribe_part(request, cut, share, _turn(request)))
        # A callback, because a task that is cancelled before it begins never runs.
        task.add_done_callback(lambda _: window.release(room))
        return task

    async def _transcribe_part(self, request: _Request, cut: Segment, share: float, turn: PartTurn | None) -> Answer:
        samples, prompt, identified = await request.cut_recording.read(cut), request.prompt, None
        if turn is not None:
            identified = await _identified(request, samples, turn)
            prompt = prompt._replace(language=identified.part.language)
        part = Part(samples, share, request.caller, request.deadline, request.lane, prompt)
        answer = await request.accepted.transcribe(part)
        request.answered_seconds += share
        self._metrics.audio_seconds.labels("ok", request.lane.model).inc(share)
        rate = request.cut_recording.recording.rate
        start, end = cut.start / rate, cut.stop / rate
        return Answer(shifted(answer.transcript, start), answer.queue_seconds, start, end, identified)

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
            unanswered = 0.0 if is_refused else request.cut_recording.recording.seconds - request.answered_seconds
            self._metrics.audio_seconds.labels(outcome, request.lane.model).inc(max(0.0, unanswered))


async def _until(room: "asyncio.Future[None]", deadline: float | None) -> None:
    """Wait for room in the window.

    Raises:
        DeadlineExceededError: if there is none in time.
    """
    try:
        async with asyncio.timeout_at(deadline):
            await room
    except TimeoutError:
        raise DeadlineExceededError("No transcript in time.", retry_after=60) from None


async def _joined(joiner: Joiner, cut_recording: CutRecording, task: "asyncio.Task[Answer]", cut: Segment) -> Answer:
    """Wait for the answer of a part, and return what is final now: of its words, and of those held back before it."""
    answer, rate = await task, cut_recording.recording.rate
    cut_recording.note_answer(cut, has_text=bool(answer.transcript.text))
    transcript = joiner.push(answer.transcript, cut.stop / rate, cut.shared / rate)
    # Words held back from the part before may begin earlier than this part.
    held = [word.start for word in transcript.words[:1] if word.start is not None]
    return replace(answer, transcript=transcript, start=min([answer.start, *held]))


def _turn(request: _Request) -> PartTurn | None:
    return request.languages.next_turn() if request.languages else None


async def _identified(request: _Request, samples: Samples, turn: PartTurn) -> Identified:
    """Identify the language of a part, by its beginning."""
    languages, rate = request.languages, request.cut_recording.recording.rate
    assert languages

    async def identifying() -> Probabilities:
        if rate == languages.rate:
            beginning = identified_samples(samples, rate, rate)
        else:  # resampling half a minute takes milliseconds
            threads = request.cut_recording.threads
            beginning = await in_thread(threads, lambda: identified_samples(samples, rate, languages.rate))
        part = Part(beginning, 0.0, request.caller, request.deadline, languages.lane, DEFAULT_PROMPT)
        return await request.accepted.identify(part)

    return await turn.decide(identifying(), len(samples) / rate)
