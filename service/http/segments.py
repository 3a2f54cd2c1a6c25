"""Segments: stretches of speech that end with a sentence or at a pause."""

from collections.abc import Iterator, Sequence

from service.engine.protocol import Word

_SENTENCE_ENDS = (".", "?", "!", "。", "．", "｡", "？", "！", "…", "।", "؟")
_CLOSING = "\"'”’»」』】）)]"
# Models without punctuation would make one segment of a whole recording: a pause this long ends one too.
_PAUSE_SECONDS = 1.0


def split_segments(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Group words into segments: up to the end of a sentence, or to a long pause."""
    segment: list[Word] = []
    for word in words:
        if segment and _pause(segment[-1], word) >= _PAUSE_SECONDS:
            yield segment
            segment = []
        segment.append(word)
        if ends_sentence(word.text):
            yield segment
            segment = []
    if segment:
        yield segment


def ends_sentence(text: str) -> bool:
    """Tell whether a sentence ends with a word."""
    return text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)


def _pause(before: Word, after: Word) -> float:
    """Seconds between two words; none where that is not known."""
    return 0.0 if before.end is None or after.start is None else after.start - before.end
