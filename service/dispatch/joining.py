"""Joining the transcripts of a recording's parts."""

from collections.abc import Iterable

from audio.segment.seam import not_before, seam, sure_words, text_of
from models.transcript import Transcript, Word
from service.scripts import run_together

_NOTHING = Transcript("", [], [], [])


class Joiner:
    """Joins the transcripts of a recording's parts as they arrive, without doubling words of shared audio.

    Words in audio that the next part shares are held back until that part arrives.
    """

    def __init__(self) -> None:
        self._held: tuple[Transcript, float, float] | None = None

    def push(self, part: Transcript, stop: float, shared: float) -> Transcript:
        """Add the next part, and return the words that are final now.

        Args:
            part: its transcript, with times of the recording.
            stop: when it ends.
            shared: seconds at its end that the next part shares.
        """
        kept = [] if self._held is None else [self._held[0]]
        if self._held is not None:
            before, begin, end = self._held
            last, first = seam(before.words, part.words, begin, end)
            kept = [_divided(before, last)[0]]
            part = _not_before(_divided(part, first)[1], kept[0].words[-1].end if kept[0].words else None)
        if not shared:
            self._held = None
            return joined([*kept, part])
        sure, doubted = _divided(part, sure_words(part.words, stop - shared, stop))
        self._held = doubted, stop - shared, stop
        return joined([*kept, sure])


def _divided(transcript: Transcript, words: int) -> tuple[Transcript, Transcript]:
    """Split a transcript after a number of words."""
    if words <= 0:
        return _NOTHING, transcript
    if words >= len(transcript.words):
        return transcript, _NOTHING
    texts, token = [word.text for word in transcript.words], transcript.words[words].token_span[0]
    others = _moved(transcript.words[words:], -token)
    return (
        Transcript(
            text_of(transcript.text, texts, 0, words),
            transcript.tokens[:token],
            transcript.token_confidence[:token],
            transcript.words[:words],
        ),
        Transcript(
            text_of(transcript.text, texts, words, len(texts)),
            transcript.tokens[token:],
            transcript.token_confidence[token:],
            others,
        ),
    )


def _not_before(part: Transcript, time: float | None) -> Transcript:
    words = [
        word._replace(start=start, end=end)
        for word, (start, end) in zip(part.words, not_before(part.words, time), strict=True)
    ]
    return part._replace(words=words)


def shifted(transcript: Transcript, seconds: float) -> Transcript:
    """Add ``seconds`` to the times of a part, which turns them into times of the recording."""
    # Rounded to the millisecond, the unit of subtitles, because sums of binary fractions are long in JSON.
    words = [
        Word(text, _later(start, seconds), _later(end, seconds), confidence, span)
        for text, start, end, confidence, span in transcript.words
    ]
    return transcript._replace(words=words)


def joined(parts: Iterable[Transcript]) -> Transcript:
    """Concatenate transcripts of parts, in order and with times of the recording."""
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
    return Transcript(run_together(texts), tokens, confidence, words)


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else round(time + seconds, 3)


def _moved(words: list[Word], tokens: int) -> list[Word]:
    """Return words with their tokens counted from ``tokens`` tokens earlier."""
    if not tokens:
        return words
    return [
        Word(text, start, end, confidence, (first + tokens, last + tokens))
        for text, start, end, confidence, (first, last) in words
    ]
