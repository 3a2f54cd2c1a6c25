"""Where to cut: from the probability of speech and the energy of each frame to segments.

A segment begins with speech and ends with a pause; shorter pauses stay inside. Where speech goes on for longer than a
segment may last, the cut is in its longest pause, and without one in its quietest frame. All is counted in frames.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

# LibriSpeech's longest utterance has 35 s. Models are trained on less, and hear longer pieces worse.
DEFAULT_UTTERANCE_SECONDS = 40.0
# Shorter pieces have no room for a word and what surrounds it.
MIN_UTTERANCE_SECONDS = 2.0

# What is speech stays speech until it is this much less likely: words have weak ends.
_HYSTERESIS = 0.15


class Segment(NamedTuple):
    """A stretch of a recording: from ``start`` up to, not including, ``stop``."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """When a segment begins and ends; lengths in seconds.

    Attributes:
        longest: no segment is longer.
        pause: silence of this length ends a segment.
        before: audio that a segment has before its speech.
        after: audio that it has after it, as far as the pause goes.
        threshold: probability from which a frame is speech.
    """

    longest: float
    pause: float = 0.3
    before: float = 0.15
    after: float = 0.15
    threshold: float = 0.5


class Segmenter:
    """Finds the segments of one recording while its frames come in; holds no more than one segment of them.

    Args:
        rule: when a segment begins and ends.
        frame_seconds: length of a frame.

    Raises:
        ValueError: if a segment could not hold a few frames.
    """

    def __init__(self, rule: SegmentRule, frame_seconds: float) -> None:
        self._longest = int(rule.longest / frame_seconds + 1e-6)
        if self._longest < 4:
            raise ValueError(f"segments of at most {rule.longest:g} s are too short for frames of {frame_seconds:g} s")
        # A pause and what surrounds speech must leave room for speech.
        self._pause = min(max(round(rule.pause / frame_seconds), 1), self._longest // 2)
        self._before = min(round(rule.before / frame_seconds), self._longest // 4)
        self._after = min(round(rule.after / frame_seconds), self._pause)
        self._threshold = rule.threshold
        self._frame = 0  # that comes next
        self._is_speech = False
        self._speech_stop = 0  # after the last frame of speech
        self._free_from = 0  # after the last segment
        self._start: int | None = None  # of the segment that is open
        self._pauses: list[Segment] = []  # within it
        # Of the frames since its start, or of those that it would have before speech that begins now.
        self._energies: deque[float] = deque()

    def push(self, probabilities: Iterable[float], energies: Iterable[float]) -> Iterator[Segment]:
        """Take the next frames, and yield the segments that end with them."""
        for probability, energy in zip(probabilities, energies, strict=True):
            self._energies.append(energy)
            self._is_speech = probability >= self._threshold - (_HYSTERESIS if self._is_speech else 0.0)
            if self._is_speech:
                yield from self._speak()
            elif self._start is None:
                if len(self._energies) > self._before:
                    self._energies.popleft()
            elif self._frame + 1 - self._speech_stop >= self._pause:
                yield self._close(self._start, self._frame + 1)
            self._frame += 1

    def finish(self) -> Iterator[Segment]:
        """Yield the segment that is open when the recording ends, if one is."""
        if self._start is not None:
            yield self._close(self._start, self._frame)

    def _speak(self) -> Iterator[Segment]:
        if self._start is None:
            self._start = max(self._free_from, self._frame - self._before)
            while len(self._energies) > self._frame + 1 - self._start:
                self._energies.popleft()
        elif self._frame > self._speech_stop:
            self._pauses.append(Segment(self._speech_stop, self._frame))
        if self._frame + 1 - self._start > self._longest:
            yield self._cut(self._start)
        self._speech_stop = self._frame + 1

    def _close(self, start: int, seen: int) -> Segment:
        stop = min(self._speech_stop + self._after, start + self._longest, seen)
        self._start, self._free_from = None, stop
        self._pauses.clear()
        while len(self._energies) > self._before:
            self._energies.popleft()
        return Segment(start, stop)

    def _cut(self, start: int) -> Segment:
        """End the open segment where it hurts least, and open the next one there."""
        stop = min(self._cut_point(start), start + self._longest)
        self._start = stop
        self._pauses = [pause for pause in self._pauses if pause.start > stop]
        for _ in range(stop - start):
            self._energies.popleft()
        return Segment(start, stop)

    def _cut_point(self, start: int) -> int:
        """The middle of the longest pause, in the second half if there is one, for short segments lack context."""
        half = start + self._longest // 2
        if self._pauses:
            best = max(self._pauses, key=lambda pause: (pause.stop > half, pause.stop - pause.start, pause.stop))
            return (best.start + best.stop + 1) // 2
        energies = list(self._energies)
        return min(range(half, start + self._longest), key=lambda frame: energies[frame - start])
