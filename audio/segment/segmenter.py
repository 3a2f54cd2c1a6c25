"""Cuts a recording into segments, by the probability of speech and the spectrum of each frame.

A segment begins with speech and ends with a pause. While the segment is short, only a long pause ends it, or one in
which the voice changes; so segments are about as long as the model's training clips, have one voice, and long silences
are left out. Where speech goes on for longer than a segment may last, the cut is in its longest pause. Where that pause
is too short for a safe cut, or there is none, the two segments share some audio around the cut, and their transcripts
are joined (``transcripts.seam``). Positions and lengths are in frames, except those of a ``SegmentRule``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

# Models transcribe an utterance worse if it is longer than those of training. LibriSpeech's longest has 35 s.
DEFAULT_UTTERANCE_SECONDS = 40.0
# Shorter utterances have no room for a word and the audio around it.
MIN_UTTERANCE_SECONDS = 2.0

# Speech ends only when the probability is this much below the threshold, because words have weak ends.
_HYSTERESIS = 0.15
# The rest are seconds. Voices change in a pause of this length; shorter ones are within words.
_TURN = 0.1
# A segment of this length has enough context, so a shorter pause than the rule's is enough to end it.
_SETTLED, _SETTLED_PAUSE = 12.0, 0.5
# A segment that would be too long is cut in a pause of this length without sharing anything; where there is none, it
# shares audio with the next.
_SAFE_PAUSE, _SHARED = 0.5, 2.0


class Segment(NamedTuple):
    """The frames ``start`` to ``stop`` - 1 of a recording; the last ``shared`` are also the next segment's first."""

    start: int
    stop: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """When a segment begins and ends; lengths in seconds."""

    longest: float  # no segment is longer
    pause: float = 1.0  # silence of this length ends a segment
    before: float = 0.4  # audio that a segment has before its speech
    after: float = 0.4  # audio that a segment has after its speech; at most the pause
    threshold: float = 0.35  # probability from which a frame is speech


class Segmenter:
    """Finds the segments of one recording while its frames come in; keeps the spectra of one segment at most.

    The longest segment has at least four frames.
    """

    def __init__(self, rule: SegmentRule, frame_seconds: float) -> None:
        self._longest = int(rule.longest / frame_seconds + 1e-6)
        # A pause and what surrounds speech must leave room for speech.
        self._pause = min(max(round(rule.pause / frame_seconds), 1), self._longest // 2)
        self._settled = round(_SETTLED / frame_seconds)
        self._settled_pause = min(max(round(_SETTLED_PAUSE / frame_seconds), 1), self._pause)
        self._before = min(round(rule.before / frame_seconds), self._longest // 4)
        self._after = min(round(rule.after / frame_seconds), self._pause)
        self._safe_pause = round(_SAFE_PAUSE / frame_seconds)
        self._turn = max(round(_TURN / frame_seconds), 1)
        # Shared frames on each side of a cut; at most an eighth of the longest segment.
        self._share = min(round(_SHARED / frame_seconds / 2), self._longest // 8)
        self._threshold = rule.threshold
        self._hysteresis = min(_HYSTERESIS, rule.threshold / 2)
        self._frame = 0  # number of the next frame
        self._is_speech = False
        self._speech_stop = 0  # the frame after the last one of speech
        self._free_from = 0  # the frame after the last segment
        self._start: int | None = None  # of the open segment
        self._pauses: list[tuple[int, int]] = []  # of the open segment, with the one that it begins with
        # Of the open segment's frames; if none is open, of the last frames, with which a segment may begin.
        self._bands: deque[NDArray[np.float32]] = deque()

    def push(self, probabilities: Iterable[float], bands: Iterable[NDArray[np.float32]]) -> Iterator[Segment]:
        """Take the next frames, and yield the segments that end with them.

        Args:
            probabilities: of speech, for each frame.
            bands: logarithms of the energy in some bands, for each frame [bands].
        """
        for probability, of_frame in zip(probabilities, bands, strict=True):
            self._bands.append(of_frame)
            self._is_speech = probability >= self._threshold - (self._hysteresis if self._is_speech else 0.0)
            if self._is_speech:
                yield from self._speak()
            elif self._start is None:
                if len(self._bands) > self._before:
                    self._bands.popleft()
            elif self._frame + 1 - self._speech_stop >= self._ending_pause(self._start):
                yield from self._close(self._start, self._frame + 1)
            self._frame += 1

    def finish(self) -> Iterator[Segment]:
        """Yield the open segment, if there is one, at the end of the recording."""
        if self._start is not None:
            yield from self._close(self._start, self._frame)

    def _ending_pause(self, start: int) -> int:
        return self._settled_pause if self._speech_stop - start >= self._settled else self._pause

    def _speak(self) -> Iterator[Segment]:
        if self._start is None:
            self._start = max(self._free_from, self._frame - self._before)
            self._forget(len(self._bands) - (self._frame + 1 - self._start))
            self._pauses.append((self._start, self._frame))
        elif self._frame > self._speech_stop:
            self._pauses.append((self._speech_stop, self._frame))
        if self._frame + 1 - self._start > self._longest:
            yield from self._cut(self._start)
        self._speech_stop = self._frame + 1

    def _close(self, start: int, seen: int) -> Iterator[Segment]:
        start = yield from self._divided(start, self._speech_stop)
        stop = min(self._speech_stop + self._after, start + self._longest, seen)
        yield Segment(start, stop)
        self._start, self._free_from = None, stop
        self._pauses.clear()
        self._forget(len(self._bands) - self._before)

    def _cut(self, start: int) -> Iterator[Segment]:
        """End the open segment where its voice changes, or else at the best cut point, and open the next one there."""
        rest = yield from self._divided(start, self._frame)
        if rest == start:
            cut, share = self._cut_point(start)
            rest = self._reopen(start, cut - share)
            yield Segment(start, cut + share, 2 * share)
        self._start = rest

    def _divided(self, start: int, stop: int) -> Generator[Segment, None, int]:
        """Yield the parts of the open segment that end with a change of voice, and return the start of the rest."""
        import numpy as np  # the help of commands that name lengths does not wait for it

        from audio.segment.voice_change import voice_changes

        turns = [pause for pause in self._pauses if pause[1] - pause[0] >= self._turn]
        ends = [start, *chain.from_iterable(turns), stop]
        bands = np.stack(self._bands)
        runs = [bands[max(first - start, 0) : last - start] for first, last in zip(ends[::2], ends[1::2], strict=True)]
        for changed in voice_changes(runs):
            begin, end = turns[changed - 1]
            middle = (begin + end + 1) // 2
            yield Segment(start, min(begin + self._after, middle))
            start = self._reopen(start, max(end - self._before, middle))
        return start

    def _reopen(self, start: int, at: int) -> int:
        """Move the start of the open segment to ``at``, which is returned."""
        self._pauses = [(max(begin, at), end) for begin, end in self._pauses if end > at]
        self._forget(at - start)
        return at

    def _forget(self, frames: int) -> None:
        for _ in range(frames):
            self._bands.popleft()

    def _cut_point(self, start: int) -> tuple[int, int]:
        """Return where to cut, and how many frames are shared on each side of the cut.

        The cut is the middle of the longest pause, or else the quietest frame, in the second half of the segment,
        because short segments lack context.
        """
        half, last = start + self._longest // 2, start + self._longest
        begin, end = self._longest_pause(half, last)
        if end - begin >= self._safe_pause:
            return (begin + end + 1) // 2, 0
        last -= self._share
        begin, end = self._longest_pause(half, last)
        if end > begin:
            return (begin + end + 1) // 2, self._share
        import numpy as np

        loudness = np.stack(self._bands).sum(axis=1)
        return half + int(loudness[half - start : last - start].argmin()), self._share

    def _longest_pause(self, first: int, last: int) -> tuple[int, int]:
        """Return the longest pause between two frames, clipped to them; of equally long ones the last."""
        within = [(max(begin, first), min(end, last)) for begin, end in self._pauses if begin < last and end > first]
        return max(within, key=lambda pause: (pause[1] - pause[0], pause[1]), default=(first, first))
