"""Scripts without spaces between words: Han, kana, bopomofo, Thai, Lao, Tibetan, Burmese and Khmer."""

import re
import unicodedata
from collections.abc import Iterable

# Han, kana, bopomofo and their punctuation, which have no spaces between sentences either.
WIDE = (
    "\u2e80-\u2fff\u3001-\u30ff\u3100-\u312f\u31c0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f"
    "\U00020000-\U000323af"
)
_WIDE = re.compile(rf"[{WIDE}]")
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af]"
)
# Small kana, and the Thai sign of an abbreviation.
_BOUND = frozenset("ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮｧｨｩｪｫｬｭｮｯฯ")
# Modifier letters, which lengthen or repeat the character before them, and combining marks.
_BOUND_CATEGORIES = frozenset({"Lm", "Mc", "Me", "Mn"})


def separator(before: str, after: str) -> str:
    """Return what separates two texts: a space, but nothing between Han, kana or bopomofo."""
    if not before or not after:
        return ""
    return "" if _WIDE.match(before[-1]) and _WIDE.match(after) else " "


def run_together(texts: Iterable[str]) -> str:
    """Join texts with the separators of their scripts, skipping empty texts."""
    text = ""
    for following in texts:
        text += separator(text, following) + following
    return text


def is_unspaced(character: str) -> bool:
    """Return whether a character is of a script without spaces between words; punctuation is not."""
    return bool(_UNSPACED.match(character)) and not unicodedata.category(character).startswith("P")


def is_bound(character: str) -> bool:
    """Return whether a character belongs to the one before it, so that no word and no line begins with it."""
    return character in _BOUND or unicodedata.category(character) in _BOUND_CATEGORIES


def begins_unspaced(text: str) -> bool:
    """Return whether a text begins a word even without a space before it, because of its script."""
    return text != "" and is_unspaced(text[0]) and not is_bound(text[0])
