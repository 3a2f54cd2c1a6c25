"""Scripts without spaces between words: Han, kana, Thai, Lao, Tibetan, Burmese and Khmer."""

import re
import unicodedata
from collections.abc import Iterable

# Han, kana, bopomofo and their punctuation: without spaces between sentences too.
WIDE = (
    "\u2e80-\u2fff\u3001-\u30ff\u3100-\u312f\u31c0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f"
    "\U00020000-\U000323af"
)
_ENDS_WIDE = re.compile(rf"[{WIDE}]\Z")
_BEGINS_WIDE = re.compile(rf"[{WIDE}]")
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af]"
)
# Small kana, and marks that lengthen or repeat the character before them.
_BOUND = frozenset("ー々ゝヽぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮｰﾞﾟฯๆ")


def separator(before: str, after: str) -> str:
    """Return the separator of two texts: a space, but none between Han or kana."""
    if not before or not after:
        return ""
    return "" if _ENDS_WIDE.search(before) and _BEGINS_WIDE.match(after) else " "


def run_together(texts: Iterable[str]) -> str:
    """Join texts with the separators of their scripts; empty texts are skipped."""
    text = ""
    for following in texts:
        text += separator(text, following) + following
    return text


def is_unspaced(character: str) -> bool:
    """Return whether a character is of such a script; punctuation is not."""
    return bool(_UNSPACED.match(character)) and not unicodedata.category(character).startswith("P")


def begins_unspaced(text: str) -> bool:
    """Return whether a text begins a word even without a space before it, because of its script."""
    return text != "" and is_unspaced(text[0]) and text[0] not in _BOUND and unicodedata.category(text[0])[0] != "M"
