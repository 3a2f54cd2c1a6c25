"""Where lines may end, and the width of characters."""

import re
import unicodedata

from transcripts.scripts import WIDE, is_bound

# Thai, Lao, Tibetan, Myanmar, Khmer: spaces separate phrases, not words.
_PHRASED = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
_UNSPACED = re.compile(rf"[{WIDE}{_PHRASED}]")
# No line begins with closing punctuation, or ends with opening.
_CLOSING = re.compile(r"[、。，．・：；？！)\]}〉》」』】〕）］｝〜｡｣､.,;:?!%’”]")
# SentencePiece's sign of a space, and the block that looks like it.
_LONE_BLOCK = "\u2581"
_OPENING = re.compile(r"[(\[{〈《「『【〔（［｛｢‘“]")


def width(text: str) -> int:
    """Return the columns of a text on a screen: two for a wide character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(one) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def is_seen(text: str) -> bool:
    """Return whether anything of a text is seen: more than spaces, format characters and lone blocks of one eighth."""
    if text.isascii():
        return not text.isspace() and text != ""
    return any(not (one.isspace() or one == _LONE_BLOCK or unicodedata.category(one) == "Cf") for one in text)


def pieces(text: str) -> list[str]:
    """Split a text where a line may end: beside characters of scripts without spaces, unless punctuation binds them."""
    divided: list[str] = []
    for one in text:
        before = divided[-1][-1] if divided else ""
        may_begin = _UNSPACED.match(one) or _UNSPACED.match(before)
        is_bound_here = _CLOSING.match(one) or is_bound(one) or _OPENING.match(before)
        if not divided or (before.strip() and may_begin and not is_bound_here):
            divided.append(one)
        else:
            divided[-1] += one
    return divided
