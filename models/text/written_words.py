"""Words of an attention decoder, which may write times between them.

It does not give the frames of its tokens. With the prompt's timestamps on, Canary writes each word between two tokens
that name encoder frames, such as ``<|12|>``; otherwise the times of words are not known.
"""

from collections.abc import Callable, Iterator, Sequence

from models.search.result import UtteranceTokens
from models.text.tokenizers import PromptedVocabulary
from transcripts.transcript import Word


def written_words(row: UtteranceTokens, vocabulary: PromptedVocabulary, seconds: Callable[[int], float]) -> list[Word]:
    """Return the words of an utterance: the text between two frames, and elsewhere the text between spaces.

    Args:
        row: its tokens.
        vocabulary: the vocabulary of the tokens.
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
    """Yield the slices of tokens between those that name a frame."""
    first = 0
    for index, frame in enumerate((*frames, -1)):
        if frame is not None:
            if first < index:
                yield first, index
            first = index + 1


def _between_spaces(
    tokens: Sequence[int], vocabulary: PromptedVocabulary, first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Yield the slices of words between ``first`` and ``last``, each of which begins with a space."""
    for index in range(first + 1, last):
        if vocabulary.token_bytes[tokens[index]].startswith(b" "):
            yield first, index
            first = index
    yield first, last
