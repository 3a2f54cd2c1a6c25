"""Subtitles: dividing words into readable cues of a few short lines, cut where the speech pauses.

The division is optimal for the whole transcript: each cue has a cost, a cut inside a phrase costs more than one after
punctuation or at a pause, and the cheapest division is taken.
"""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

from transcripts.line_breaks import is_seen, pieces, width
from transcripts.segments import ends_sentence
from transcripts.transcript import Word

LEAST_SECONDS = 0.8
VTT_HEAD = "WEBVTT\n"

_PHRASE_ENDS = (",", ";", ":", "、", "，", "；", "：")
_PAUSE_SECONDS = 0.3
_LONG_PAUSE_SECONDS = 1.0

_CUE_COST = 1.0
_SHORT_COST = 2.0  # of a cue that is shown too briefly
_PAUSE_INSIDE_COST = 4.0  # of a long pause in a cue, whose text is then shown before it is said
_CUT_COSTS = {"sentence": 0.0, "long pause": 0.0, "phrase": 0.5, "pause": 1.0, "nothing": 3.0}


@dataclass(frozen=True, slots=True)
class CueSize:
    """The size of a cue."""

    characters: int = 42  # columns of a line; a wide character takes two
    lines: int = 2  # most lines
    seconds: float = 7.0  # longest time that it is shown

    @classmethod
    def of(cls, characters: int | None, lines: int | None, seconds: float | None) -> Self:
        """Return a size; None stands for the usual."""
        usual = cls()
        return cls(characters or usual.characters, lines or usual.lines, seconds or usual.seconds)


USUAL = CueSize()


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle: its lines, its times in seconds, and its speaker, if known."""

    lines: tuple[str, ...]
    start: float
    end: float
    speaker: str | None = None


class _TimedWord(NamedTuple):
    text: str  # with the space before it
    start: float
    end: float


def cues(words: Sequence[Word], size: CueSize = USUAL, speaker: str | None = None) -> list[Cue]:
    """Divide words, each with the space before it, into cues that do not overlap; those without times are left out.

    A word that is wider than a line or lasts longer than a cue has a cue of its own; in a script without spaces it is
    divided between characters instead. A speaker's name takes room at the beginning of each cue.
    """
    label = f"{speaker}: " if speaker else ""
    timed = [
        piece
        for word in words
        if is_seen(word.text) and word.start is not None and word.end is not None
        for piece in _divided(_TimedWord(word.text, word.start, word.end), size)
    ]
    layout = _Layout(timed, size, width(label))
    shown = []
    for first, last in _divide(timed, layout):
        following = timed[last].start if last < len(timed) else math.inf
        start, end = timed[first].start, timed[last - 1].end
        # A brief cue is shown for longer, if the next one leaves the time.
        end = min(max(end, start + LEAST_SECONDS), max(following, start))
        shown.append(Cue(layout.lines(first, last), start, end, speaker))
    return shown


def _divided(word: _TimedWord, size: CueSize) -> list[_TimedWord]:
    """Divide a word that is too wide or too long, where its script allows it; its time is divided by width."""
    if width(word.text) <= size.characters and word.end - word.start <= size.seconds:
        return [word]
    parts = pieces(word.text)
    ends = list(accumulate(map(width, parts)))
    each = (word.end - word.start) / max(1, ends[-1])
    return [
        _TimedWord(part, word.start + before * each, word.start + end * each)
        for part, before, end in zip(parts, [0, *ends[:-1]], ends, strict=True)
    ]


class _Layout:
    """The layout of words in lines, with running sums of widths."""

    def __init__(self, words: Sequence[_TimedWord], size: CueSize, label: int) -> None:
        self._texts = [word.text for word in words]
        self._ends = [0, *accumulate(map(width, self._texts))]
        self._spaces = [width(text) - width(text.lstrip()) for text in self._texts]
        self.size = size
        self._label = label

    def reach(self, first: int) -> int:
        """Return up to where the words from ``first`` on fit the lines of a cue."""
        return [first, *self._line_ends(first, self.size.characters)][-1]

    def lines(self, first: int, last: int) -> tuple[str, ...]:
        """Return the fewest lines for some words, as even as possible; one line if they do not fit."""
        breaks = self._breaks(first, last, self.size.characters)
        if breaks is None:
            return (self._text(first, last),)

        def takes_no_more(most: int) -> bool:
            narrow = self._breaks(first, last, most)
            return narrow is not None and len(narrow) <= len(breaks)

        narrowest = bisect_left(range(self.size.characters), 1, key=takes_no_more)
        starts = [first, *(self._breaks(first, last, narrowest) or breaks)]
        return tuple(self._text(*pair) for pair in itertools.pairwise([*starts, last]))

    def _breaks(self, first: int, last: int, most: int) -> list[int] | None:
        """Return where lines of at most ``most`` columns begin, except the first; None if the words do not fit."""
        ends = self._line_ends(first, most)
        return [end for end in ends if end < last] if ends and ends[-1] >= last else None

    def _line_ends(self, first: int, most: int) -> list[int]:
        """Return up to where the words from ``first`` on fit each line of a cue, of at most ``most`` columns."""
        ends: list[int] = []
        start, room = first, most - self._label
        while len(ends) < self.size.lines and start < len(self._texts):
            stop = bisect_right(self._ends, self._ends[start] + self._spaces[start] + room, start) - 1
            if stop <= start:
                break
            ends.append(stop)
            start, room = stop, most
        return ends

    def _text(self, first: int, last: int) -> str:
        return "".join(self._texts[first:last]).strip()


def _divide(words: Sequence[_TimedWord], layout: _Layout) -> Iterator[tuple[int, int]]:
    """Yield the cues of the cheapest division, found from the end.

    After a step, ``rest[i]`` is the least cost of the words from i on, and of the cut before them.
    """
    ends = [word.end for word in words]
    pause_costs = [0.0] + [
        (after.start - before.end >= _LONG_PAUSE_SECONDS) * _PAUSE_INSIDE_COST
        for before, after in itertools.pairwise(words)
    ]
    rest = [0.0] * (len(words) + 1)
    cut = [0] * len(words)
    for first in range(len(words) - 1, -1, -1):
        least, start, pauses = math.inf, words[first].start, 0.0
        for last in range(first + 1, max(layout.reach(first), first + 1) + 1):
            seconds = ends[last - 1] - start
            if last > first + 1:
                if seconds > layout.size.seconds:
                    break
                pauses += pause_costs[last - 1]
            cost = _CUE_COST + pauses + (_SHORT_COST if seconds < LEAST_SECONDS else 0.0) + rest[last]
            if cost < least:
                least, cut[first] = cost, last
        rest[first] = least + (_cut_cost(words[first - 1], words[first]) if first else 0.0)
    first = 0
    while first < len(words):
        yield first, cut[first]
        first = cut[first]


def _cut_cost(before: _TimedWord, after: _TimedWord) -> float:
    """Return the cost of a cut between two words."""
    if ends_sentence(before.text):
        return _CUT_COSTS["sentence"]
    pause = after.start - before.end
    if pause >= _LONG_PAUSE_SECONDS:
        return _CUT_COSTS["long pause"]
    if before.text.endswith(_PHRASE_ENDS):
        return _CUT_COSTS["phrase"]
    return _CUT_COSTS["pause" if pause >= _PAUSE_SECONDS else "nothing"]


def srt(shown: Sequence[Cue]) -> str:
    """Render cues as SubRip."""
    return "\n".join(srt_block(number, cue) for number, cue in enumerate(shown, 1))


def srt_block(number: int, cue: Cue) -> str:
    """Render a cue as SubRip, where a speaker can only be part of the text."""
    speaker = f"{cue.speaker}: " if cue.speaker else ""
    times = f"{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}"
    return f"{number}\n{times}\n{speaker}" + "\n".join(cue.lines) + "\n"


def vtt(shown: Sequence[Cue]) -> str:
    """Render cues as WebVTT (W3C)."""
    return "\n".join([VTT_HEAD, *map(vtt_block, shown)])


def vtt_block(cue: Cue) -> str:
    """Render a cue as WebVTT, whose text must be escaped."""
    speaker = f"<v {_escape(cue.speaker)}>" if cue.speaker else ""
    times = f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}"
    return f"{times}\n{speaker}" + "\n".join(map(_escape, cue.lines)) + "\n"


def _escape(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, point: str) -> str:
    milliseconds = round(1000 * seconds)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"
