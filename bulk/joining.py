"""The hypotheses of a recording's parts as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from models import Hypothesis


def joined(parts: Sequence[tuple[float, Hypothesis]], seconds_per_frame: float) -> Hypothesis:
    """Return what was heard in a recording.

    Args:
        parts: the second at which each part begins, and what was heard in it; at least one.
        seconds_per_frame: length of an encoder frame; frames are counted from the start of the recording, to the
            nearest.
    """
    (start, first), *others = parts
    if not others and start == 0:
        return first
    moved = [_moved(hypothesis, start, round(start / seconds_per_frame)) for start, hypothesis in parts]
    words, tokens = [], 0
    for part in moved:
        words += [
            replace(word, token_span=(word.token_span[0] + tokens, word.token_span[1] + tokens)) for word in part.words
        ]
        tokens += len(part.tokens)
    return replace(
        first,
        text=" ".join(part.text for part in moved if part.text),
        tokens=[token for part in moved for token in part.tokens],
        frames=None if first.frames is None else [frame for part in moved for frame in part.frames or ()],
        durations=None if first.durations is None else [count for part in moved for count in part.durations or ()],
        token_confidence=[confidence for part in moved for confidence in part.token_confidence],
        words=words,
    )


def _moved(hypothesis: Hypothesis, seconds: float, frames: int) -> Hypothesis:
    words = [
        replace(word, start=_later(word.start, seconds), end=_later(word.end, seconds)) for word in hypothesis.words
    ]
    moved = None if hypothesis.frames is None else [frame + frames for frame in hypothesis.frames]
    return replace(hypothesis, frames=moved, words=words)


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else round(time + seconds, 3)
