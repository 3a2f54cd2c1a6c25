"""Giving times to words that the model gave none."""

from collections.abc import Iterator, Sequence

from transcripts.transcript import Transcript, Word


def timed_words(transcript: Transcript, end: float, start: float = 0.0) -> list[Word]:
    """Return the words of a transcript, each with times and the space before it.

    A word without times is merged with the word before it, or else after it. If no word has times, all become one from
    ``start`` to ``end`` of the recording or part.
    """
    timed: list[Word] = []
    waiting: list[Word] = []  # before the first that has a time
    for word in _spaced(transcript):
        if word.start is not None and word.end is not None:
            timed.append(_together([*waiting, word], word.start, word.end) if waiting else word)
            waiting = []
        elif timed:
            before = timed[-1]
            timed[-1] = _together([before, word], before.start, before.end)
        else:
            waiting.append(word)
    return timed or ([_together(waiting, start, end)] if waiting else [])


def text_of(words: Sequence[Word]) -> str:
    """Return the text of words that include the spaces before them."""
    return "".join(word.text for word in words).strip()


def _spaced(transcript: Transcript) -> Iterator[Word]:
    """Yield the words with the spaces before them, if their scripts have spaces."""
    end = 0
    for word in transcript.words:
        begin = transcript.text.find(word.text, end)
        space = " " if begin < 0 or transcript.text[end:begin].strip(" ") != transcript.text[end:begin] else ""
        end = end if begin < 0 else begin + len(word.text)
        yield Word(space + word.text, *word[1:])


def spread_words(transcript: Transcript, seconds: float) -> list[Word]:
    """Return the words of a transcript of ``seconds``; those without times share that between their neighbours."""
    spread: list[Word] = []
    waiting: list[Word] = []
    for word in transcript.words:
        if word.start is None or word.end is None:
            waiting.append(word)
            continue
        spread += [*_between(waiting, _end_of(spread), word.start), word]
        waiting = []
    return spread + _between(waiting, _end_of(spread), seconds)


def _between(words: Sequence[Word], start: float, end: float) -> list[Word]:
    share = max(0.0, end - start) / max(1, len(words))
    return [
        word._replace(start=start + place * share, end=start + (place + 1) * share) for place, word in enumerate(words)
    ]


def _end_of(words: Sequence[Word]) -> float:
    return words[-1].end or 0.0 if words else 0.0


def _together(words: Sequence[Word], start: float | None, end: float | None) -> Word:
    known = [word.confidence for word in words if word.confidence is not None]
    return words[0]._replace(
        text="".join(word.text for word in words),
        start=start,
        end=end,
        confidence=min(known, default=None),
        token_span=(words[0].token_span[0], words[-1].token_span[1]),
    )
