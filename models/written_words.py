"""Words of an attention decoder, which writes text and may write times between the words.

It does not say at which frame a token was heard. Asked for timestamps, Canary writes each word between two tokens that
name encoder frames, such as ``<|12|>``; otherwise when its words were said is not known.
"""

from collections.abc import Callable, Iterator, Sequence

from models.hypothesis import Word
from models.search.result import Row
from models.tokenizers import PromptedVocabulary


def written_words(row: Row, vocabulary: PromptedVocabulary, seconds: Callable[[int], float]) -> list[Word]:
    """Return the words of an utterance: what stands between two frames, and elsewhere what stands between spaces.

    Args:
        row: its tokens.
        vocabulary: what the tokens stand for.
        seconds: turns a frame that the model wrote into seconds.
    """
    frames = [vocabulary.frame(token) for token in row.tokens]
    found = []
    for first, last in _between_frames(frames):
        start = frames[first - 1] if first else None
        end = frames[last] if last < len(frames) else None
        start_seconds = end_seconds = None
        spans: Iterator[tuple[int, int]] = _between_spaces(row.tokens, vocabulary, first, last)
        if start is not None and end is not None and start <= end:
            start_seconds, end_seconds = seconds(start), seconds(end)
            spans = iter([(first, last)])
        for span in spans:
            if text := vocabulary.text(row.tokens[slice(*span)]):
                confidence = min(row.confidence[slice(*span)])
                found.append(Word(text, start_seconds, end_seconds, confidence, span))
    return found


def _between_frames(frames: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Yield the slices of the tokens that name no frame."""
    first = 0
    for index, frame in enumerate((*frames, -1)):
        if frame is not None:
            if first < index:
                yield first, index
            first = index + 1


def _between_spaces(
    tokens: Sequence[int], vocabulary: PromptedVocabulary, first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Yield the slices of a slice of the tokens that begin with a space."""
    for index in range(first + 1, last):
        if vocabulary.spellings[tokens[index]].startswith(b" "):
            yield first, index
            first = index
    yield first, last
