"""Cues that people can read: at most two lines of 42 characters, 0.8 to 7 s, cut where the speech pauses.

Where to cut is chosen for the whole transcript at once: every cue costs something, a cut inside a phrase costs more
than one after punctuation or at a pause, and the cheapest division wins.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.engine.protocol import Word
from service.http.segments import SENTENCE_ENDS

LINE_CHARACTERS = 42
LEAST_SECONDS = 0.8
MOST_SECONDS = 7.0

_MOST_WORDS = 2 * LINE_CHARACTERS  # of one letter each, no more fit a cue
_PHRASE_ENDS = (",", ";", ":", "、", "，")
_PAUSE_SECONDS = 0.3
_LONG_PAUSE_SECONDS = 1.0

_CUE_COST = 1.0
_SHORT_COST = 2.0  # of a cue that flashes by
_PAUSE_INSIDE_COST = 4.0  # of text that is read before it is said
_CUT_COSTS = {"sentence": 0.0, "long pause": 0.0, "phrase": 0.5, "pause": 1.0, "nothing": 3.0}


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle: its lines, when it is shown, in seconds, and who speaks, where that is known."""

    lines: tuple[str, ...]
    start: float
    end: float
    speaker: str | None = None


class _TimedWord(NamedTuple):
    text: str
    start: float
    end: float


def cues(words: Sequence[Word], speaker: str | None = None) -> list[Cue]:
    """Divide words that have times into cues that do not overlap, each with at least one word.

    A speaker is named at the beginning of each, which takes room.

    A word that is longer than a line, or lasts longer than a cue may, has a cue to itself.
    """
    timed = [
        _TimedWord(word.text, word.start, word.end) for word in words if word.start is not None and word.end is not None
    ]
    label = f"{speaker}: " if speaker else ""
    groups = list(_divide(timed, label))
    shown = []
    for index, group in enumerate(groups):
        following = groups[index + 1][0].start if index + 1 < len(groups) else math.inf
        start, end = group[0].start, group[-1].end
        # What flashes by stays until it can be read, if the next cue leaves it the time.
        end = min(max(end, start + LEAST_SECONDS), max(following, start))
        first, *rest = _lines(_labelled(label, group))
        shown.append(Cue((first[len(label) :], *rest), start, end, speaker))
    return shown


def _divide(words: Sequence[_TimedWord], label: str) -> Iterator[Sequence[_TimedWord]]:
    """Yield the groups of the cheapest division, found from the end: best[i] is that of the words from i on."""
    best = [0.0] * (len(words) + 1)
    cut = [0] * len(words)
    for first in range(len(words) - 1, -1, -1):
        best[first] = math.inf
        for last in range(first + 1, min(first + _MOST_WORDS, len(words)) + 1):
            group = words[first:last]
            if len(group) > 1 and not _fits(group, label):
                break
            cost = _cost(group) + _cut_cost(words, last) + best[last]
            if cost < best[first]:
                best[first], cut[first] = cost, last
    first = 0
    while first < len(words):
        yield words[first : cut[first]]
        first = cut[first]


def _fits(group: Sequence[_TimedWord], label: str) -> bool:
    return group[-1].end - group[0].start <= MOST_SECONDS and _wrap(_labelled(label, group)) is not None


def _labelled(label: str, group: Sequence[_TimedWord]) -> list[str]:
    """The texts of some words, the first with a label that stands on its line."""
    return [label + group[0].text, *(word.text for word in group[1:])]


def _cost(group: Sequence[_TimedWord]) -> float:
    inside = sum(
        _PAUSE_INSIDE_COST
        for before, after in itertools.pairwise(group)
        if after.start - before.end >= _LONG_PAUSE_SECONDS
    )
    short = group[-1].end - group[0].start < LEAST_SECONDS
    return _CUE_COST + inside + (_SHORT_COST if short else 0.0)


def _cut_cost(words: Sequence[_TimedWord], last: int) -> float:
    """What it costs to cut before the word at ``last``."""
    if last == len(words) or words[last - 1].text.endswith(SENTENCE_ENDS):
        return _CUT_COSTS["sentence"]
    pause = words[last].start - words[last - 1].end
    if pause >= _LONG_PAUSE_SECONDS:
        return _CUT_COSTS["long pause"]
    if words[last - 1].text.endswith(_PHRASE_ENDS):
        return _CUT_COSTS["phrase"]
    return _CUT_COSTS["pause" if pause >= _PAUSE_SECONDS else "nothing"]


def _lines(texts: Sequence[str]) -> tuple[str, ...]:
    return _wrap(texts) or (" ".join(texts),)


def _wrap(texts: Sequence[str]) -> tuple[str, ...] | None:
    """Return one line, or the two most even ones, or None if two are not enough."""
    whole = " ".join(texts)
    if len(whole) <= LINE_CHARACTERS:
        return (whole,)
    if len(whole) > 2 * LINE_CHARACTERS + 1:
        return None
    divisions = ((" ".join(texts[:cut]), " ".join(texts[cut:])) for cut in range(1, len(texts)))
    fitting = [lines for lines in divisions if max(map(len, lines)) <= LINE_CHARACTERS]
    return min(fitting, key=lambda lines: max(map(len, lines)), default=None)


def srt(shown: Sequence[Cue]) -> str:
    """Render cues as SubRip, which has no place for a speaker but the text."""
    blocks = (
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n"
        + (f"{cue.speaker}: " if cue.speaker else "")
        + "\n".join(cue.lines)
        + "\n"
        for number, cue in enumerate(shown, 1)
    )
    return "\n".join(blocks)


def vtt(shown: Sequence[Cue]) -> str:
    """Render cues as WebVTT (W3C), whose text is markup."""
    blocks = (
        f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n"
        + (f"<v {_escape(cue.speaker)}>" if cue.speaker else "")
        + "\n".join(map(_escape, cue.lines))
        + "\n"
        for cue in shown
    )
    return "\n".join(["WEBVTT\n", *blocks])


def _escape(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, point: str) -> str:
    milliseconds = round(1000 * seconds)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"
