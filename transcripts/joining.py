"""Joining the transcripts of a recording's parts, and filling gaps in which the model wrote no words."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from transcripts.scripts import run_together
from transcripts.seam import seam, sure_words, text_of
from transcripts.transcript import Transcript, Word

_NOTHING = Transcript("", [], [], [])
# A word may sound longer than its tokens say: those of CTC are one frame, and a transducer may be late.
_EDGE_SECONDS = 0.3


class Gap(NamedTuple):
    """A stretch of an utterance without words, or a part of one, in seconds."""

    start: float
    stop: float


class Joiner:
    """Joins the transcripts of a recording's parts as they arrive, without doubling words of shared audio.

    Words in audio that the next part shares are held back until that part arrives.
    """

    def __init__(self) -> None:
        self._held: tuple[Transcript, float, float] | None = None

    def push(self, part: Transcript, stop: float, shared: float) -> Transcript:
        """Add the next part, which ends at ``stop`` and has these seconds in common with the one behind it.

        Returns the words that are final now. Times are those of the recording.
        """
        kept: list[Transcript] = []
        if self._held is not None:
            before, begin, end = self._held
            last, first = seam(before.words, part.words, begin, end)
            kept = [divided(before, last)[0]]
            part = not_before(divided(part, first)[1], kept[0].words[-1].end if kept[0].words else None)
        if not shared:
            self._held = None
            return joined([*kept, part])
        sure, doubted = divided(part, sure_words(part.words, stop - shared, stop))
        self._held = doubted, stop - shared, stop
        return joined([*kept, sure])


def divided(transcript: Transcript, words: int) -> tuple[Transcript, Transcript]:
    """Split a transcript after a number of words."""
    if words <= 0:
        return _NOTHING, transcript
    if words >= len(transcript.words):
        return transcript, _NOTHING
    texts, token = [word.text for word in transcript.words], transcript.words[words].token_span[0]
    text, tokens, confidence, all_words, frames, durations = transcript

    def part(first: int, last: int, its: slice) -> Transcript:
        kept = _moved(all_words[first:last], -all_words[first].token_span[0] if first else 0)
        numbers = tokens[its], confidence[its], kept, frames and frames[its], durations and durations[its]
        return Transcript(text_of(text, texts, first, last), *numbers)

    return part(0, words, slice(token)), part(words, len(texts), slice(token, None))


def not_before(part: Transcript, time: float | None) -> Transcript:
    """Move words so that none begins before ``time``, because the times of two segments may disagree."""
    if time is None:
        return part
    words = [
        word
        if word.start is None or word.end is None
        else word._replace(start=max(word.start, time), end=max(word.end, time))
        for word in part.words
    ]
    return part._replace(words=words)


def shifted(transcript: Transcript, seconds: float, frames: int = 0) -> Transcript:
    """Return the transcript of a part with times and frames of the recording, where it begins at those given."""
    # Rounded to the millisecond, the unit of subtitles, because sums of binary fractions are long in JSON.
    words = [
        Word(text, _later(start, seconds), _later(end, seconds), confidence, span)
        for text, start, end, confidence, span in transcript.words
    ]
    moved = None if transcript.frames is None else [frame + frames for frame in transcript.frames]
    return transcript._replace(words=words, frames=moved)


def joined(parts: Sequence[Transcript]) -> Transcript:
    """Concatenate transcripts of parts, in order and with times of the recording."""
    if len(parts) == 1:
        return parts[0]
    texts: list[str] = []
    tokens: list[int] = []
    confidence: list[float] = []
    words: list[Word] = []
    for part in parts:
        if part.text:
            texts.append(part.text)
        words += _moved(part.words, len(tokens))
        tokens += part.tokens
        confidence += part.token_confidence
    return Transcript(
        *(run_together(texts), tokens, confidence, words),
        frames=_concatenated(part.frames for part in parts),
        durations=_concatenated(part.durations for part in parts),
    )


def gaps(transcript: Transcript, seconds: float, least: float) -> list[Gap]:
    """Return the stretches of an utterance of ``seconds`` without words, of ``least`` seconds or more, in order.

    There are none if the words have no times.
    """
    edge, found = 0.0, []
    for word in transcript.words:
        if word.start is None or word.end is None:
            return []
        found.append(Gap(edge, word.start - _EDGE_SECONDS))
        edge = max(edge, word.end + _EDGE_SECONDS)
    found.append(Gap(edge, seconds))
    return [gap for gap in found if gap.stop - gap.start >= least]


def filled(transcript: Transcript, words: Transcript) -> Transcript:
    """Return a transcript with the words of a gap put in; both have times of the utterance.

    Without times they have no place beside other words, and are left out.
    """
    if not transcript.words:
        return words
    if not words.words or words.words[0].start is None:
        return transcript
    begin = words.words[0].start
    before = sum(1 for word in transcript.words if word.start is not None and word.start < begin)
    first, last = divided(transcript, before)
    return joined([first, words, not_before(last, words.words[-1].end)])


def _concatenated(lists: Iterable[list[int] | None]) -> list[int] | None:
    known = [one for one in lists if one is not None]
    return list(chain.from_iterable(known)) if known else None


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else round(time + seconds, 3)


def _moved(words: list[Word], tokens: int) -> list[Word]:
    """Return words whose token spans are moved by ``tokens``."""
    if not tokens:
        return words
    return [
        Word(text, start, end, confidence, (first + tokens, last + tokens))
        for text, start, end, confidence, (first, last) in words
    ]
