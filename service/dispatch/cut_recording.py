"""A decoded recording as the dispatcher takes it: what is short as one utterance, what is long cut part by part."""

from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from audio.recording import Recording
from audio.resample import Samples
from audio.segment.cuts import Probabilities, cuts, speech
from audio.segment.segmenter import Segment, SegmentRule
from audio.segment.voice_activity import FRAME_SECONDS, SpeechDetector
from service.threads import in_thread

T = TypeVar("T")

_SPEECH = 0.5  # probability from which a frame is speech, as OpenAI's server_vad has it


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of a recording was heard, in seconds.

    Attributes:
        heard: was given to the model.
        skipped: was left out, because nobody was found to speak.
        speech_without_text: is speech to the detector, within pieces of which the model wrote nothing.
    """

    heard: float
    skipped: float
    speech_without_text: float

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(
            self.heard + other.heard,
            self.skipped + other.skipped,
            self.speech_without_text + other.speech_without_text,
        )


@dataclass(frozen=True, slots=True)
class CutRecording:
    """Where the utterances of a request come from.

    Attributes:
        recording: what was decoded.
        rule: where it is cut; None takes it whole.
        detector: finds the speech.
        threads: in which it is cut and read.
    """

    recording: Recording
    rule: SegmentRule | None
    detector: SpeechDetector
    threads: Executor
    _heard: list[Probabilities] = field(default_factory=list, init=False, repr=False)
    _answered: list[tuple[Segment, bool]] = field(default_factory=list, init=False, repr=False)

    @property
    def is_whole(self) -> bool:
        """It is one utterance."""
        return self.rule is None

    async def cuts(self) -> AsyncGenerator[Segment, None]:
        """Yield its utterances in order, in samples; a few at a time, as they are asked for."""
        if self.rule is None:
            yield Segment(0, len(self.recording))
            return
        blocks: Iterator[list[Segment] | None] = cuts(self.recording, self.detector, self.rule, self._heard.append)
        while (found := await self._in_thread(lambda: next(blocks, None))) is not None:
            for segment in found:
                yield segment

    async def speech(self) -> Probabilities:
        """Return how likely each frame of the recording is speech, once it is cut."""
        if self.rule is None:
            return await self._in_thread(lambda: speech(self.recording, self.detector))
        return np.concatenate(self._heard) if self._heard else np.empty(0, np.float32)

    def note_answer(self, segment: Segment, *, has_text: bool) -> None:
        """Note that an utterance was answered."""
        self._answered.append((segment, has_text))

    async def coverage(self) -> Coverage:
        """Return what of it was heard, once all its utterances are answered."""
        rate, total = self.recording.rate, len(self.recording)
        heard = sum(segment.stop - segment.start - segment.shared for segment, _ in self._answered)
        silent = [segment for segment, has_text in self._answered if not has_text]
        speech = 0.0
        if silent:
            is_speech = await self.speech() >= _SPEECH
            for segment in silent:
                first, last = (round(end / rate / FRAME_SECONDS) for end in (segment.start, segment.stop))
                speech += float(is_speech[first:last].sum()) * FRAME_SECONDS
        return Coverage(round(heard / rate, 3), round(max(0, total - heard) / rate, 3), round(speech, 3))

    async def read(self, segment: Segment) -> Samples:
        """Return the samples of one."""
        if self.rule is None:  # what is taken whole is in memory
            return self.recording.read(segment.start, segment.stop)
        return await self._in_thread(lambda: self.recording.read(segment.start, segment.stop))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await in_thread(self.threads, work)
