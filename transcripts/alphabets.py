"""Scripts: which ones a text is written in, and which ones a language is written with.

A script is the first word of its characters' names in Unicode: LATIN, CYRILLIC, CJK (Han), HIRAGANA. Only letters and
the marks on them have one; digits, punctuation and what many scripts share ("COMBINING ACUTE ACCENT") have none.
"""

import unicodedata
from collections.abc import Collection, Iterable
from functools import lru_cache

from transcripts.languages import NAMES

# Scripts with the languages (ISO 639-1) that are written with them today; all other languages are written in Latin. A
# language may have several. Chinese, Japanese and Korean texts have Latin words in them.
_TABLE = """
CYRILLIC ab av ba be bg ce cu cv kk kv ky mk mn os ru sr tg tt uk uz
GREEK el
ARABIC ar fa ks ku ps sd ug ur
HEBREW he yi
ARMENIAN hy
GEORGIAN ka
DEVANAGARI hi ks mr ne pi sa sd
BENGALI as bn
GURMUKHI pa
GUJARATI gu
ORIYA or
TAMIL ta
TELUGU te
KANNADA kn
MALAYALAM ml
SINHALA si
THAI th
LAO lo
TIBETAN bo dz
MYANMAR my
KHMER km
ETHIOPIC am ti
THAANA dv
HANGUL ko
CJK ja ko zh
HIRAGANA ja
KATAKANA ja
BOPOMOFO zh
YI ii
CANADIAN cr iu oj
AVESTAN ae
LATIN cr iu ja ko ku oj pi sr uz zh
"""
_LANGUAGES = {script: frozenset(codes) for script, *codes in map(str.split, _TABLE.strip().splitlines())}


@lru_cache(maxsize=256)
def scripts_of_language(language: str) -> frozenset[str]:
    """Return the scripts that a language (ISO 639-1) is written with; none if it is not known."""
    if language not in NAMES:
        return frozenset()
    return frozenset(script for script, codes in _LANGUAGES.items() if language in codes) or frozenset({"LATIN"})


def scripts_of_text(text: str) -> frozenset[str]:
    """Return the scripts of a text's letters."""
    return frozenset(script for character in text if (script := _script(character)))


def allowed_scripts(scripts: Collection[str], languages: Iterable[str]) -> frozenset[str]:
    """Return which of a model's scripts a text in one of these languages may have.

    All, if there is no language, if one is not known, or if the model has none of their scripts: it must write some.
    """
    of_languages = [scripts_of_language(language) for language in languages]
    allowed = frozenset(scripts).intersection(frozenset().union(*of_languages))
    return allowed if allowed and all(of_languages) else frozenset(scripts)


def tells_apart(language: str, scripts: Collection[str], others: Iterable[str]) -> bool:
    """Return whether a text of a model of these scripts, without those that a language lacks, can be in no other.

    ``others`` are the languages that the model may write; this one may be among them.
    """
    allowed = allowed_scripts(scripts, [language])
    if not allowed & scripts_of_language(language):
        return False
    return all(other == language or allowed.isdisjoint(scripts_of_language(other)) for other in others)


def a_narrow_language(scripts: Collection[str]) -> str | None:
    """Return a language whose texts have some of a model's scripts only; None if there is none."""
    return next((code for code in NAMES if len(allowed_scripts(scripts, [code])) < len(set(scripts))), None)


def _script(character: str) -> str | None:
    if unicodedata.category(character)[0] not in "LM":
        return None
    first = unicodedata.name(character, "").partition(" ")[0]
    return first if first in _LANGUAGES else None
