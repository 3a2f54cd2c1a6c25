"""The transcripts of a recording's parts as one."""

from collections.abc import Iterable

import msgspec

from service.engine.protocol import Transcript, Word


def shifted(transcript: Transcript, seconds: float) -> Transcript:
    """Move the times of a part to those of the recording, in which it begins after so many seconds."""
    if not seconds:
        return transcript
    # To the millisecond, the unit of subtitles: sums of binary fractions have long tails in JSON.
    words = [
        msgspec.structs.replace(word, start=_later(word.start, seconds), end=_later(word.end, seconds))
        for word in transcript.words
    ]
    return msgspec.structs.replace(transcript, words=words)


def joined(parts: Iterable[Transcript]) -> Transcript:
    """Put parts, in order and with times of the recording, into one transcript."""
    texts: list[str] = []
    tokens: list[int] = []
    confidence: list[float] = []
    words: list[Word] = []
    for part in parts:
        if part.text:
            texts.append(part.text)
        words += [msgspec.structs.replace(word, token_span=_moved(word.token_span, len(tokens))) for word in part.words]
        tokens += part.tokens
        confidence += part.token_confidence
    return Transcript(" ".join(texts), tokens, confidence, words)


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else round(time + seconds, 3)


def _moved(span: tuple[int, int], tokens: int) -> tuple[int, int]:
    return span[0] + tokens, span[1] + tokens
