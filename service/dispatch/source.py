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
from audio.segment.voice_activity import SpeechDetector
from service.threads import in_thread

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the utterances of a request come from.

    Attributes:
        recording: What was decoded.
        rule: Where it is cut; None takes it whole.
        detector: Finds the speech.
        threads: In which it is cut and read.
    """

    recording: Recording
    rule: SegmentRule | None
    detector: SpeechDetector
    threads: Executor
    _heard: list[Probabilities] = field(default_factory=list, init=False, repr=False)

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
        return np.concatenate(self._heard)

    async def read(self, segment: Segment) -> Samples:
        """Return the samples of one."""
        if self.rule is None:  # what is taken whole is in memory
            return self.recording.read(*segment)
        return await self._in_thread(lambda: self.recording.read(*segment))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await in_thread(self.threads, work)
