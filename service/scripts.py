"""Scripts without spaces between words, and the width of characters."""

import re
import unicodedata

# Han, kana, bopomofo and their punctuation: without spaces between sentences too.
_WIDE = (
    "\u2e80-\u2fff\u3001-\u30ff\u3100-\u312f\u31c0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f"
    "\U00020000-\U000323af"
)
# Thai, Lao, Tibetan, Myanmar, Khmer: with spaces between phrases.
_PHRASED = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
_ENDS_WIDE = re.compile(rf"[{_WIDE}]\Z")
_BEGINS_WIDE = re.compile(rf"[{_WIDE}]")
_UNSPACED = re.compile(rf"[{_WIDE}{_PHRASED}]")
# Characters that no line may begin with: closing punctuation, marks that lengthen or repeat, small kana.
_BOUND = re.compile(
    r"[、。，．・：；？！)\]}〉》」』】〕）］｝〜ー々ゝヽぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮ.,;:?!%’”ฯๆ]"
)


def separator(before: str, after: str) -> str:
    """Return the separator of two texts: a space, but none between Han or kana."""
    if not before or not after:
        return ""
    return "" if _ENDS_WIDE.search(before) and _BEGINS_WIDE.match(after) else " "


def run_together(texts: list[str]) -> str:
    """Join texts with the separators of their scripts; empty texts are skipped."""
    text = ""
    for following in texts:
        text += separator(text, following) + following
    return text


def width(text: str) -> int:
    """Return the columns of a text on a screen: two for a wide character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(one) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def pieces(text: str) -> list[str]:
    """Split a text where a line may end: between characters of scripts without spaces, else nowhere."""
    divided: list[str] = []
    for one in text:
        before = divided[-1][-1] if divided else ""
        may_begin = _UNSPACED.match(one) or _UNSPACED.match(before)
        is_bound = _BOUND.match(one) or unicodedata.category(one).startswith("M")
        if before.strip() and may_begin and not is_bound:
            divided.append(one)
        elif divided:
            divided[-1] += one
        else:
            divided.append(one)
    return divided
