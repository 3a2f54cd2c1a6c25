"""Phrases that a caller expects to be said, such as names, with weights.

A list of phrases travels as one text, a phrase a line: it is sent once for each utterance, and compared with lists that
were seen before.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MOST_PHRASES = 1_000
MOST_WEIGHT = 10.0
_MOST_BYTES_EACH = 200
_MOST_BYTES = 32 << 10


class PhraseError(ValueError):
    """A list of phrases that is too long, or has a phrase that is none."""


class Phrase(NamedTuple):
    """A phrase, and how much more likely it is made: 0 not at all, 1 as usual."""

    text: str
    weight: float = 1.0


def phrase_lines(phrases: Iterable[Phrase]) -> str:
    """Return phrases as lines, ``text`` or ``text<TAB>weight``; what has no text or the weight 0 is left out.

    Raises:
        PhraseError: if there are over 1,000, one has over 200 bytes, all have over 32 KiB, or a weight is not in 0..10.
    """
    lines = dict.fromkeys(line for phrase in phrases if (line := _line(phrase)))
    if len(lines) > MOST_PHRASES:
        raise PhraseError(f"{len(lines)} phrases are more than {MOST_PHRASES}")
    text = "\n".join(lines)
    if len(text.encode()) > _MOST_BYTES:
        raise PhraseError(f"phrases of {len(text.encode())} bytes are more than {_MOST_BYTES}")
    return text


def _line(phrase: Phrase) -> str:
    text = " ".join(phrase.text.split())
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise PhraseError(f"{text!a} is not Unicode text") from None
    if size > _MOST_BYTES_EACH:
        raise PhraseError(f"the phrase {text[:24]!r}... has {size} bytes, more than {_MOST_BYTES_EACH}")
    if not 0 <= phrase.weight <= MOST_WEIGHT:  # not a number is refused too
        raise PhraseError(f"the weight {phrase.weight:g} of {text!r} is not between 0 and {MOST_WEIGHT:g}")
    if not text or not phrase.weight:
        return ""
    return text if phrase.weight == 1 else f"{text}\t{phrase.weight:g}"


def parse_phrases(lines: str) -> list[Phrase]:
    """Return the phrases of lines; raise PhraseError, with the line, if a weight is not a number."""
    phrases = []
    for number, line in enumerate(lines.splitlines(), 1):
        text, tab, weight = line.rpartition("\t")
        try:
            phrases.append(Phrase(text, float(weight)) if tab else Phrase(line))
        except ValueError:
            raise PhraseError(f"line {number}: the weight {weight!r} is not a number") from None
    return phrases


def read_phrases(path: Path) -> str:
    """Return the lines of a file of phrases, one a line, with a weight after a tab where it is not 1.

    Raises:
        PhraseError: if it cannot be read, or has what ``phrase_lines`` refuses; it names the file.
    """
    try:
        return phrase_lines(parse_phrases(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise PhraseError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PhraseError(f"{path} is not UTF-8: {error}") from error
    except PhraseError as error:
        raise PhraseError(f"{path}: {error}") from error
