"""A decoded recording and its utterances: one, or those that it is cut into, each cut when it is needed."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from audio.recording import Recording
from audio.samples import Samples
from audio.segment.cuts import CutBlock, SpeechProbabilities, cuts, speech
from audio.segment.level import audible
from audio.segment.segmenter import Segment, SegmentRule
from audio.segment.voice_activity import FRAME_SECONDS, SpeechDetector
from service.threads import in_thread
from transcripts.joining import Gap
from transcripts.transcription import Coverage

T = TypeVar("T")

_SPEECH = 0.5  # probability from which a frame is speech, as in OpenAI's server_vad


@dataclass(frozen=True, slots=True)
class CutRecording:
    """A recording, and where it is cut."""

    recording: Recording
    rule: SegmentRule | None  # where to cut it; None: it is one utterance
    detector: SpeechDetector
    threads: Executor
    _probabilities: list[SpeechProbabilities] = field(default_factory=list, init=False, repr=False)

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

    async def speech(self, rescued: Sequence[Gap] = ()) -> SpeechProbabilities:
        """Return the probability of speech in each frame of the recording, once it is cut; 1 where it was rescued."""
        if self.rule is None:
            found = await self._in_thread(lambda: speech(self.recording, self.detector))
        else:
            found = np.concatenate([*self._probabilities, np.empty(0, np.float32)])
        for start, stop in rescued:
            found[round(start / FRAME_SECONDS) : round(stop / FRAME_SECONDS)] = 1.0
        return found

    async def coverage(self, answered: Sequence[tuple[Segment, bool]], rescued: Sequence[Gap]) -> Coverage:
        """Return how much of it was transcribed: its utterances, each with whether the model wrote anything for it."""
        rate, total = self.recording.rate, len(self.recording)
        transcribed = sum(segment.stop - segment.start - segment.shared for segment, _ in answered)
        silent = [segment for segment, has_text in answered if not has_text]
        speech = 0.0
        if silent:
            is_speech = await self.speech() >= _SPEECH
            for segment in silent:
                first, last = (round(end / rate / FRAME_SECONDS) for end in (segment.start, segment.stop))
                speech += float(is_speech[first:last].sum()) * FRAME_SECONDS
        skipped = max(0, total - transcribed)
        again = sum((stop - start for start, stop in rescued), 0.0)
        return Coverage(*(round(of, 3) for of in (transcribed / rate, skipped / rate, speech, again)))

    async def read(self, segment: Segment) -> Samples:
        """Return the samples of an utterance; of a recording that is cut, raised if they are quiet."""
        if self.rule is None:  # a recording that is not cut is in memory
            return self.recording.read(segment.start, segment.stop)
        return await self._in_thread(lambda: audible(self.recording.read(segment.start, segment.stop)))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await in_thread(self.threads, work)
