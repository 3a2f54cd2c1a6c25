"""Joining the transcripts of two segments that share some audio, so that no word is lost or doubled.

The join is behind a word that both have at the same time: the one nearest to the middle of the shared audio, because
transcripts are worst at the ends. Where they agree on no word, the join is at a time near the middle at which neither
has one. Words without times, of an attention decoder, are joined within the longest run that both have.
"""

import math
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from transcripts.transcript import Word

# Seconds. Times of the same word in two segments differ by a frame or two of the encoder, seldom by more.
_TOLERANCE = 0.3
# Speech seldom has more, which bounds the words without times that the shared audio can hold.
_WORDS_A_SECOND = 6
# Words at the edges of the shared audio may be cut, and then each segment has something else for them.
_FRAGMENTS = 2


def sure_words(words: Sequence[Word], begin: float, end: float) -> int:
    """Return how many words of a segment come before the audio that it shares with the next, ``begin`` to ``end``."""
    if _timed(words):
        return sum(_end(word) <= begin for word in words)
    return max(0, len(words) - _most_words(begin, end))


def seam(before: Sequence[Word], after: Sequence[Word], begin: float, end: float) -> tuple[int, int]:
    """Return how many words of a segment are kept, and the index of the first that is kept of the next segment.

    The audio that they share, ``begin`` to ``end``, is from the start of the next one to the end of the segment.
    """
    if not _timed(before) or not _timed(after):
        return _seam_of_texts([word.text for word in before], [word.text for word in after], _most_words(begin, end))
    middle = (begin + end) / 2
    sure = sum(_end(word) <= begin for word in before)
    doubted = before[sure:]
    repeated = after[: sum(_start(word) < end for word in after)]
    both = [
        (abs((_middle(doubted[left]) + _middle(repeated[right])) / 2 - middle), left, right)
        for left, right in _common(doubted, repeated)
    ]
    if both:
        _, left, right = min(both)
        return sure + left + 1, right + 1
    time = _quiet_time([*doubted, *repeated], begin, end)
    return sure + sum(_middle(word) < time for word in doubted), sum(_middle(word) < time for word in repeated)


def text_of(text: str, words: Sequence[str], first: int, last: int) -> str:
    """Return the part of a text that holds the words from ``first`` up to ``last``, as the text writes them."""
    begin = end = 0
    for index, word in enumerate(words[:last]):
        found = text.find(word, end)
        if index == first:
            begin = end if found < 0 else found
        end = end if found < 0 else found + len(word)
    return text[begin:end] if first < last else ""


def _seam_of_texts(before: Sequence[str], after: Sequence[str], most: int) -> tuple[int, int]:
    """Join words without times in the middle of the longest run that both have; without a run, keep all."""
    tail, head = [_letters(word) for word in before[-most:]], [_letters(word) for word in after[:most]]
    match = SequenceMatcher(None, tail, head, autojunk=False).find_longest_match()
    if not match.size:
        return len(before), 0
    half = (match.size + 1) // 2
    return len(before) - len(tail) + match.a + half, match.b + half


def _most_words(begin: float, end: float) -> int:
    return math.ceil(_WORDS_A_SECOND * (end - begin)) + _FRAGMENTS


def _timed(words: Sequence[Word]) -> bool:
    return all(word.start is not None and word.end is not None for word in words)


def _start(word: Word) -> float:
    return word.start or 0.0


def _end(word: Word) -> float:
    return word.end or 0.0


def _middle(word: Word) -> float:
    return (_start(word) + _end(word)) / 2


def _common(before: Sequence[Word], after: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the alignment, pairs of words in order, with the highest sum of ``_agreement``."""
    best = [[0.0] * (len(after) + 1) for _ in range(len(before) + 1)]
    for left in reversed(range(len(before))):
        for right in reversed(range(len(after))):
            agreement = _agreement(before[left], after[right])
            together = best[left + 1][right + 1] + agreement if agreement else 0.0
            best[left][right] = max(together, best[left + 1][right], best[left][right + 1])
    pairs, left, right = [], 0, 0
    while left < len(before) and right < len(after):
        if best[left][right] == best[left + 1][right]:
            left += 1
        elif best[left][right] == best[left][right + 1]:
            right += 1
        else:
            pairs.append((left, right))
            left, right = left + 1, right + 1
    return pairs


def _agreement(left: Word, right: Word) -> float:
    """Return 1 for the same word at the same time, less for one nearby in time, 0 for another word."""
    distance = abs(_middle(left) - _middle(right))
    if distance >= _TOLERANCE or _letters(left.text) != _letters(right.text):
        return 0.0
    # Squared, so that repetitions of a word are paired with themselves, not with their neighbours.
    return float((1 - distance / _TOLERANCE) ** 2)


def _letters(text: str) -> str:
    """Return a word in lower case without punctuation around it: both depend on its neighbours."""
    return text.casefold().strip(".,;:?!\"'()[]…。，？！、") or text


def _quiet_time(words: Sequence[Word], begin: float, end: float) -> float:
    """Return a time between ``begin`` and ``end``, near their middle and, if possible, inside no word."""
    middle = (begin + end) / 2

    def badness(time: float) -> tuple[int, float]:
        return sum(_start(word) < time < _end(word) for word in words), abs(time - middle)

    edges = [time for word in words for time in (_start(word), _end(word)) if begin <= time <= end]
    # Halfway between neighbouring edges, because times of the two segments differ by some frames.
    ordered = sorted({begin, end, *edges})
    between = [(left + right) / 2 for left, right in pairwise(ordered)]
    return min([middle, *edges, *between], key=badness)
