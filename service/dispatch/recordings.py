"""Transcribing recordings of any length: cut into parts, staged while there is room, answered part by part in order.

A window bounds how many parts are in memory, and callers take turns, so that hours of audio take bounded memory and
others wait behind them no longer than behind a short recording.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from audio.segment.segmenter import Segment
from models.joining import Joiner, shifted
from models.prompt import Prompt
from service.dispatch.backlog import Accepted
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer, Dispatcher
from service.dispatch.errors import DeadlineExceededError
from service.dispatch.utterance import Lane
from service.dispatch.window import Window
from service.engine.protocol import NOTHING_ASKED
from service.metrics import Metrics


@dataclass(frozen=True, slots=True)
class _Request:
    cut_recording: CutRecording
    caller: Hashable
    lane: Lane
    prompt: Prompt
    deadline: float | None
    accepted: Accepted


class Recordings:
    """Transcribes recordings through the dispatcher.

    Args:
        dispatcher: transcribes their parts.
        timeout: seconds that a recording may take in addition to its own length.
    """

    def __init__(self, dispatcher: Dispatcher, *, timeout: float, metrics: Metrics) -> None:
        self._dispatcher = dispatcher
        self._timeout = timeout
        self._metrics = metrics

    async def transcribe(
        self,
        cut_recording: CutRecording,
        caller: Hashable,
        lane: Lane,
        prompt: Prompt = NOTHING_ASKED,
        *,
        waited_seconds: float = 0.0,
        is_background: bool = False,
    ) -> AsyncGenerator[Answer, None]:
        """Yield the answers of a recording's parts in order, with times of the recording; none without speech.

        Closing the generator, or cancelling the task that awaits it, drops the parts that are under way.

        Args:
            cut_recording: the recording. Gate 1 must have let its request in, unless it is a job's.
            caller: who takes turns with others.
            lane: the model, and which of its decoders.
            prompt: what is asked for, in every part.
            waited_seconds: seconds that it waited for its model, which count in its deadline.
            is_background: whether it is a job's: it goes after all others, and has no deadline.

        Raises:
            OverloadedError: at gate 2, before anything else.
            DispatchError: if a part gets no transcript; see `Dispatcher.transcribe`.
        """
        seconds = cut_recording.recording.seconds
        left = self._timeout + seconds - waited_seconds
        deadline = None if is_background else asyncio.get_running_loop().time() + left
        under_way: deque[tuple[asyncio.Task[Answer], Segment]] = deque()
        joiner = Joiner()
        admission = self._dispatcher.admission
        with admission.accept(lane.model, seconds, is_background=is_background) as accepted, self._counted(accepted):
            request = _Request(cut_recording, caller, lane, prompt, deadline, accepted)
            if cut_recording.is_whole:
                yield await self._transcribe_whole(request)
                return
            try:
                async with aclosing(cut_recording.cuts()) as cuts:
                    async for cut in cuts:
                        window, samples = self._window(request, cut)
                        room = window.acquire(samples)
                        try:
                            while not room.done():
                                await _either(room, under_way, deadline)
                                # Answers do not wait until the next part has room.
                                while under_way and under_way[0][0].done():
                                    yield await _joined(joiner, cut_recording, *under_way.popleft())
                        except BaseException:
                            window.cancel(room, samples)
                            raise
                        under_way.append((self._begun(request, cut, window, samples), cut))
                        while under_way and under_way[0][0].done():
                            yield await _joined(joiner, cut_recording, *under_way.popleft())
                while under_way:
                    yield await _joined(joiner, cut_recording, *under_way.popleft())
            finally:
                for task, _ in under_way:
                    task.cancel()
                await asyncio.gather(*(task for task, _ in under_way), return_exceptions=True)

    async def _transcribe_whole(self, request: _Request) -> Answer:
        """Transcribe a recording that is one utterance; it is in memory already, and needs no room."""
        cut_recording, seconds = request.cut_recording, request.accepted.unanswered_seconds
        whole = Segment(0, len(cut_recording.recording))
        request.accepted.unstaged_seconds = 0.0
        answer = await self._transcribe_part(request, whole, seconds)
        cut_recording.note_answer(whole, has_text=bool(answer.transcript.text))
        return answer

    def _window(self, request: _Request, cut: Segment) -> tuple[Window, int]:
        """Return the window that a part must enter, and its samples."""
        window = self._dispatcher.background_window if request.accepted.is_background else self._dispatcher.window
        return window, cut.stop - cut.start

    def _begun(self, request: _Request, cut: Segment, window: Window, samples: int) -> "asyncio.Task[Answer]":
        """Start a part that has its room in the window."""
        cut_recording = request.cut_recording
        # A part's share includes the silence before it, which gets no transcript.
        unstaged = (len(cut_recording.recording) - cut.stop) / cut_recording.recording.rate
        share = request.accepted.unstaged_seconds - unstaged
        request.accepted.unstaged_seconds = unstaged
        task = asyncio.create_task(self._transcribe_part(request, cut, share))
        # A callback, because a task that is cancelled before it begins never runs.
        task.add_done_callback(lambda _: window.release(samples))
        return task

    async def _transcribe_part(self, request: _Request, cut: Segment, share: float) -> Answer:
        samples = await request.cut_recording.read(cut)
        answer = await self._dispatcher.transcribe(
            samples,
            request.caller,
            request.deadline,
            request.lane,
            request.prompt,
            is_background=request.accepted.is_background,
            recording_seconds=request.cut_recording.recording.seconds,
        )
        self._dispatcher.admission.backlog.answer(request.accepted, share)
        self._metrics.audio_seconds.labels("ok", request.lane.model).inc(share)
        offset = cut.start / request.cut_recording.recording.rate
        return Answer(shifted(answer.transcript, offset), answer.queue_seconds, offset)

    @contextmanager
    def _counted(self, accepted: Accepted) -> Iterator[None]:
        """Count the audio without an answer at the end: silence after the last part, or parts that were given up."""
        outcome = "error"
        try:
            yield
            outcome = "ok"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        finally:
            self._metrics.audio_seconds.labels(outcome, accepted.model).inc(max(0.0, accepted.unanswered_seconds))


async def _either(
    room: "asyncio.Future[None]", under_way: "deque[tuple[asyncio.Task[Answer], Segment]]", deadline: float | None
) -> None:
    """Wait for room in the window, or for the first answer.

    Raises:
        DeadlineExceededError: if neither comes in time.
    """
    seconds = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
    awaited: list[asyncio.Future[Any]] = [room, *(task for task, _ in islice(under_way, 1))]
    done, _ = await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if not done:
        raise DeadlineExceededError("No transcript in time.", retry_after=60)


async def _joined(joiner: Joiner, cut_recording: CutRecording, task: "asyncio.Task[Answer]", cut: Segment) -> Answer:
    """Wait for the answer of a part, and return the words of it and of the one before that are final."""
    answer, rate = await task, cut_recording.recording.rate
    cut_recording.note_answer(cut, has_text=bool(answer.transcript.text))
    transcript = joiner.push(answer.transcript, cut.stop / rate, cut.shared / rate)
    # Words held back from the part before may begin earlier than this part.
    held = [word.start for word in transcript.words[:1] if word.start is not None]
    return Answer(transcript, answer.queue_seconds, min([answer.start, *held]))
