"""Join the transcripts of a recording's parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from audio.segment.seam import not_before, seam, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from models import Transcript

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heard:
    """The transcript of a part of a recording.

    Attributes:
        transcript: the transcript, with times counted from the start of the part.
        start: the second at which the part begins.
        stop: the second at which it ends.
        shared: seconds at its end that the next part has too.
    """

    transcript: Transcript
    start: float
    stop: float
    shared: float = 0.0


def joined_parts(parts: Sequence[Heard], seconds_per_frame: float) -> Transcript:
    """Return the transcript of a recording; words of shared audio are taken from one of the two parts.

    Args:
        parts: at least one, in order.
        seconds_per_frame: length of an encoder frame, to count the result's frames from the start of the recording.
    """
    first = parts[0].transcript
    if len(parts) == 1 and parts[0].start == 0:
        return first
    moved = [_moved(part.transcript, part.start, round(part.start / seconds_per_frame)) for part in parts]
    for index, part in enumerate(parts[:-1]):
        if part.shared:
            before, after = moved[index : index + 2]
            kept, begin = seam(before.words, after.words, part.stop - part.shared, part.stop)
            before, after = _part_of(before, 0, kept), _part_of(after, begin, len(after.words))
            times = not_before(after.words, before.words[-1].end if before.words else None)
            words = [word._replace(start=start, end=end) for word, (start, end) in zip(after.words, times, strict=True)]
            moved[index : index + 2] = before, after._replace(words=words)
    words, tokens = [], 0
    for heard in moved:
        words += [
            word._replace(token_span=(word.token_span[0] + tokens, word.token_span[1] + tokens)) for word in heard.words
        ]
        tokens += len(heard.tokens)
    return first._replace(
        text=" ".join(heard.text for heard in moved if heard.text),
        tokens=[token for heard in moved for token in heard.tokens],
        frames=None if first.frames is None else [frame for heard in moved for frame in heard.frames or ()],
        durations=None if first.durations is None else [count for heard in moved for count in heard.durations or ()],
        token_confidence=[confidence for heard in moved for confidence in heard.token_confidence],
        words=words,
    )


def _part_of(whole: Transcript, first: int, last: int) -> Transcript:
    """Return the part of a transcript that holds the words from ``first`` up to ``last``."""
    begin = whole.words[first].token_span[0] if 0 < first < len(whole.words) else 0
    end = whole.words[last].token_span[0] if last < len(whole.words) else len(whole.tokens)
    if first >= len(whole.words) > 0:
        begin = end

    def cut(values: list[T] | None) -> list[T] | None:
        return None if values is None else values[begin:end]

    return whole._replace(
        text=text_of(whole.text, [word.text for word in whole.words], first, last) if whole.words else whole.text,
        tokens=whole.tokens[begin:end],
        frames=cut(whole.frames),
        durations=cut(whole.durations),
        token_confidence=whole.token_confidence[begin:end],
        words=[
            word._replace(token_span=(word.token_span[0] - begin, word.token_span[1] - begin))
            for word in whole.words[first:last]
        ],
    )


def _moved(transcript: Transcript, seconds: float, frames: int) -> Transcript:
    words = [
        word._replace(start=_later(word.start, seconds), end=_later(word.end, seconds)) for word in transcript.words
    ]
    moved = None if transcript.frames is None else [frame + frames for frame in transcript.frames]
    return transcript._replace(frames=moved, words=words)


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else round(time + seconds, 3)
