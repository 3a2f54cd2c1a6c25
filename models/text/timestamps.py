"""Words and their times from tokens and their frames, by NeMo's rules.

Times of transducers equal NeMo's, but no word ends behind its utterance, though its last frame does. Those of CTC do
not, because NeMo gives each token the start of the one before it. A piece that is only a space is a word in NeMo, and
not here. In scripts without spaces, NeMo has one word for the whole utterance; here each token is a word.

CTC puts a token where its sound begins, and then blanks, however long it lasts, so words that end with their last
token's run would end 0.16 s too early. Instead a word ends ``lasts`` seconds after the start of its last token, by that
token's number of letters, but not after the start of the next word (errors: docs/measured).
"""

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest

from models.search.result import UtteranceTokens
from models.text.tokenizers import Vocabulary
from transcripts.transcript import Word

_SPACE = " "
_TOKEN_SECONDS, _LETTER_SECONDS = 0.1, 0.05


def lasts(letters: int) -> float:
    """Return the seconds that a token of this number of letters lasts, from its start in the output of CTC."""
    return _TOKEN_SECONDS + _LETTER_SECONDS * letters


def words(
    row: UtteranceTokens,
    vocabulary: Vocabulary,
    seconds: Callable[[int], float],
    *,
    is_ctc: bool = False,
    length: float = math.inf,
) -> list[Word]:
    """Return the words of an utterance.

    Args:
        row: its tokens with their frames.
        vocabulary: the vocabulary of the tokens.
        seconds: turns a number of encoder frames into seconds.
        is_ctc: whether the tokens are those of CTC.
        length: length of the utterance in seconds.
    """
    assert row.frames is not None
    assert row.ends is not None
    if not vocabulary.tags.isdisjoint(row.tokens):
        return _between_tags(row, vocabulary, seconds, is_ctc=is_ctc, length=length)
    texts = [vocabulary.texts[token] for token in row.tokens]
    starts, ends = row.frames, row.ends
    if row.durations is not None:
        starts, ends = _at_the_word_before(texts, vocabulary.punctuation, starts, ends)
    spans = _spans(_begins(row.tokens, vocabulary), texts, vocabulary.punctuation)
    found = []
    for index, (first, last) in enumerate(spans):
        if text := vocabulary.text(row.tokens[first:last]).strip():
            start = starts[first if index else 0]  # the first word also has the spaces before it
            confidence = min(row.confidence[first:last])
            begin, end = seconds(start), seconds(ends[last - 1])
            found.append(Word(text, begin, max(begin, min(end, length)), confidence, (first, last)))
    return _lasting(found, row, texts, vocabulary.punctuation, seconds, length) if is_ctc else found


def _between_tags(
    row: UtteranceTokens, vocabulary: Vocabulary, seconds: Callable[[int], float], *, is_ctc: bool, length: float
) -> list[Word]:
    """Return the words of the tokens that are no tags."""
    kept = [index for index, token in enumerate(row.tokens) if token not in vocabulary.tags]

    def of(numbers: list[int] | None) -> list[int] | None:
        return None if numbers is None else [numbers[index] for index in kept]

    tokens, confidence = [row.tokens[index] for index in kept], [row.confidence[index] for index in kept]
    without = UtteranceTokens(tokens, of(row.frames), of(row.ends), of(row.durations), confidence)
    found = words(without, vocabulary, seconds, is_ctc=is_ctc, length=length)
    spans = [(kept[word.token_span[0]], kept[word.token_span[1] - 1] + 1) for word in found]
    return [word._replace(token_span=span) for word, span in zip(found, spans, strict=True)]


def _lasting(
    found: Sequence[Word],
    row: UtteranceTokens,
    texts: Sequence[str],
    punctuation: frozenset[str],
    seconds: Callable[[int], float],
    length: float,
) -> list[Word]:
    """Extend words for as long as their last tokens last, up to the next word or the end of the utterance."""
    assert row.frames is not None
    assert row.ends is not None
    lasting = []
    for word, following in zip_longest(found, found[1:]):
        until = length if following is None or following.start is None else following.start
        first, last = word.token_span
        spoken = next((index for index in reversed(range(first, last)) if texts[index] not in punctuation), first)
        extended = seconds(row.frames[spoken]) + lasts(len(texts[spoken].strip()))
        end = min(max(seconds(row.ends[spoken]), min(extended, until)), length)
        lasting.append(word._replace(end=max(word.start or 0.0, end)))
    return lasting


def _begins(tokens: Sequence[int], vocabulary: Vocabulary) -> list[bool]:
    """Return for each token whether it begins a word.

    In scripts without spaces each token is a word, as in OpenAI's Whisper; otherwise a whole sentence would be one.
    """
    return [
        vocabulary.begin_words[token]
        or vocabulary.begin_words_anywhere[token]
        or (index > 0 and vocabulary.end_words[tokens[index - 1]] and vocabulary.begin_with_letters[token])
        for index, token in enumerate(tokens)
    ]


def _at_the_word_before(
    texts: Sequence[str], punctuation: frozenset[str], starts: Sequence[int], ends: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Move each punctuation mark to the end of the token before it: a TDT gives it a duration, but it is silent."""
    starts, ends = list(starts), list(ends)
    for index, text in enumerate(texts):
        if index and text in punctuation:
            starts[index] = ends[index] = ends[index - 1]
    return starts, ends


def _spans(begins: Sequence[bool], texts: Sequence[str], punctuation: frozenset[str]) -> list[tuple[int, int]]:
    """Return the slices of the tokens that form words.

    A space ends a word, unless a punctuation mark follows. A punctuation mark belongs to the word before it.
    """
    spans: list[tuple[int, int]] = []
    first: int | None = None  # of the word being built
    for index, (begins_word, text) in enumerate(zip(begins, texts, strict=True)):
        if text in punctuation:
            if first is None and spans:
                first, _ = spans.pop()
        elif begins_word or (text == _SPACE and _next_text(texts, index) not in punctuation):
            if first is not None:
                spans.append((first, index))
            first = None
            if text == _SPACE:
                continue
        first = index if first is None else first
    if first is not None:
        spans.append((first, len(texts)))
    return spans


def _next_text(texts: Sequence[str], index: int) -> str | None:
    """Return the next text that is not only a space."""
    later = (texts[position] for position in range(index + 1, len(texts)))
    return next((text for text in later if text not in ("", _SPACE)), None)
