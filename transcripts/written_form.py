"""`format=written`: words regrouped by what a grammar wrote: numbers, dates and money in digits, with their times."""

import difflib
from collections.abc import Awaitable, Callable, Iterator, Sequence

from transcripts.transcript import Transcript, Word

# Marks that begin a phrase (Spanish) or end one (also Arabic, Hindi and Armenian); grammars do not take them.
_OPENING = "¿¡"
_CLOSING = ".,?!;:…،؛؟।։"

Write = Callable[[Sequence[str]], Awaitable[list[str]]]


async def in_written_form(part: Transcript, write: Write) -> Transcript:
    """Return a transcript with its phrases rewritten by grammars.

    Neighbouring words that change, such as "twenty five dollars" to "$25", become one word: from the start of the first
    to the end of the last, with the lowest confidence of them. The tokens stay those that were spoken.
    """
    if not part.words:
        return part
    phrases = list(_phrases(part.words))
    spoken = [[_bare(word.text).lower() for word in phrase] for phrase in phrases]
    written = await write([" ".join(texts) for texts in spoken])
    words: list[Word] = []
    for phrase, texts, text in zip(phrases, spoken, written, strict=True):
        words += _grouped(phrase, texts, text.split())
    if words == part.words:
        return part
    return part._replace(text=" ".join(word.text for word in words), words=words)


def _phrases(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield the words from one punctuation mark to the next."""
    phrase: list[Word] = []
    for word in words:
        opening, closing = _marks(word.text)
        if opening and phrase:
            yield phrase
            phrase = []
        phrase.append(word)
        if closing:
            yield phrase
            phrase = []
    if phrase:
        yield phrase


def _bare(text: str) -> str:
    return text.rstrip(_CLOSING).lstrip(_OPENING) or text


def _marks(text: str) -> tuple[str, str]:
    """Return the marks before and after a word."""
    opening, _, closing = text.partition(_bare(text))
    return opening, closing


def _grouped(phrase: Sequence[Word], spoken: Sequence[str], written: Sequence[str]) -> list[Word]:
    """Return the words of a phrase in written form; unchanged words stay."""
    if not written or list(spoken) == list(written):
        return list(phrase)
    matcher = difflib.SequenceMatcher(None, spoken, written, autojunk=False)
    groups: list[tuple[list[Word], list[str]]] = []
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            groups += [([word], [_bare(word.text)]) for word in phrase[first:last]]
        elif groups and tag != "replace":  # deleted and inserted words join the group before
            groups[-1][0].extend(phrase[first:last])
            groups[-1][1].extend(written[begin:end])
        else:
            groups.append((list(phrase[first:last]), list(written[begin:end])))
    if len(groups) > 1 and not (groups[0][0] and groups[0][1]):  # those at the beginning join the group after
        (said, texts), (next_said, next_texts) = groups[:2]
        groups[:2] = [([*said, *next_said], [*texts, *next_texts])]
    words = [_group(said, " ".join(texts)) for said, texts in groups]
    opening, closing = _marks(phrase[0].text)[0], _marks(phrase[-1].text)[1]
    words[0] = words[0]._replace(text=opening + words[0].text)
    if not words[-1].text.endswith(closing):
        words[-1] = words[-1]._replace(text=words[-1].text + closing)
    return words


def _group(said: Sequence[Word], text: str) -> Word:
    """Merge words into one with another text."""
    if len(said) == 1:
        return said[0]._replace(text=text)
    starts = [word.start for word in said if word.start is not None]
    ends = [word.end for word in said if word.end is not None]
    return Word(
        text,
        min(starts, default=None),
        max(ends, default=None),
        min((word.confidence for word in said if word.confidence is not None), default=None),
        (said[0].token_span[0], said[-1].token_span[1]),
    )
