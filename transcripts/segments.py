"""Segments: stretches of speech that end with a sentence or at a pause."""

from collections.abc import Iterator, Sequence

from transcripts.transcript import Word

_SENTENCE_ENDS = (".", "?", "!", "。", "．", "｡", "？", "！", "…", "।", "؟")
_CLOSING = "\"'”’»」』】）)]"
# A pause that ends a segment: without punctuation, a whole recording would be one segment.
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
    """Return whether a word ends a sentence."""
    return text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)


def _pause(before: Word, after: Word) -> float:
    """Return the seconds between two words; 0 if they are not known."""
    return 0.0 if before.end is None or after.start is None else after.start - before.end
