"""A decoded recording and its utterances: one, or those that it is cut into, each cut when it is needed."""

from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from audio.recording import Recording
from audio.samples import Samples
from audio.segment.cuts import CutBlock, SpeechProbabilities, cuts, speech
from audio.segment.segmenter import Segment, SegmentRule
from audio.segment.voice_activity import FRAME_SECONDS, SpeechDetector
from service.threads import in_thread

T = TypeVar("T")

_SPEECH = 0.5  # probability from which a frame is speech, as in OpenAI's server_vad


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a recording was transcribed, in seconds.

    Attributes:
        transcribed: audio that the model got.
        skipped: audio that was left out, because the detector found no speech.
        speech_without_text: speech by the detector, in parts for which the model wrote nothing.
    """

    transcribed: float
    skipped: float
    speech_without_text: float

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(
            self.transcribed + other.transcribed,
            self.skipped + other.skipped,
            self.speech_without_text + other.speech_without_text,
        )


@dataclass(frozen=True, slots=True)
class CutRecording:
    """A recording, where it is cut, and which of its utterances are answered.

    Attributes:
        recording: the decoded recording.
        rule: where to cut it; None: it is one utterance.
        detector: finds the speech.
        threads: threads for cutting and reading.
    """

    recording: Recording
    rule: SegmentRule | None
    detector: SpeechDetector
    threads: Executor
    _probabilities: list[SpeechProbabilities] = field(default_factory=list, init=False, repr=False)
    _answered: list[tuple[Segment, bool]] = field(default_factory=list, init=False, repr=False)

    @property
    def rate(self) -> int:
        """Samples per second."""
        return self.recording.rate

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.recording)

    @property
    def is_whole(self) -> bool:
        """Whether it is one utterance."""
        return self.rule is None

    async def cuts(self) -> AsyncGenerator[Segment, None]:
        """Yield the utterances in order, in samples, cut only as far as they are needed; there must be a rule."""
        assert self.rule is not None
        blocks: Iterator[CutBlock | None] = cuts(self.recording, self.detector, self.rule)
        while (block := await self._in_thread(lambda: next(blocks, None))) is not None:
            self._probabilities.append(block.probabilities)
            for segment in block.utterances:
                yield segment

    async def speech(self) -> SpeechProbabilities:
        """Return the probability of speech in each frame of the recording, once it is cut."""
        if self.rule is None:
            return await self._in_thread(lambda: speech(self.recording, self.detector))
        return np.concatenate(self._probabilities) if self._probabilities else np.empty(0, np.float32)

    def note_answer(self, segment: Segment, *, has_text: bool) -> None:
        """Record that an utterance was answered."""
        self._answered.append((segment, has_text))

    async def coverage(self) -> Coverage:
        """Return how much of it was transcribed, once all its utterances are answered."""
        rate, total = self.recording.rate, len(self.recording)
        transcribed = sum(segment.stop - segment.start - segment.shared for segment, _ in self._answered)
        silent = [segment for segment, has_text in self._answered if not has_text]
        speech = 0.0
        if silent:
            is_speech = await self.speech() >= _SPEECH
            for segment in silent:
                first, last = (round(end / rate / FRAME_SECONDS) for end in (segment.start, segment.stop))
                speech += float(is_speech[first:last].sum()) * FRAME_SECONDS
        return Coverage(round(transcribed / rate, 3), round(max(0, total - transcribed) / rate, 3), round(speech, 3))

    async def read(self, segment: Segment) -> Samples:
        """Return the samples of an utterance."""
        if self.rule is None:  # a recording that is not cut is in memory
            return self.recording.read(segment.start, segment.stop)
        return await self._in_thread(lambda: self.recording.read(segment.start, segment.stop))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await in_thread(self.threads, work)
