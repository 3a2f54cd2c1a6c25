"""Detecting the language of a text by py3langid (a fork of Lui and Baldwin's langid.py)."""

import copy
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from transcripts.languages import NAMES
from transcripts.spoken_language import Spoken

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# A text whose best language is less likely is too short to identify, such as "ok".
_TELLING = 0.5

_lock = threading.Lock()


def detect_languages(texts: Sequence[str], among: Sequence[str] = ()) -> tuple[Spoken | None, list[Spoken | None]]:
    """Detect the language of texts that belong together: of all together and of each. Any thread may call this.

    A text that is too short has the language of all, with its own probability of that. Candidates are those ``among``,
    in ISO 639-1, or all.

    Returns:
        The language of all texts, and that of each; None where it cannot be detected.
    """
    identifier = _identifier(tuple(sorted(among)))
    if identifier is None:
        return None, [None] * len(texts)
    ranks = [dict(identifier.rank(text)) if any(map(str.isalpha, text)) else {} for text in texts]
    if not any(ranks):
        return None, [None] * len(texts)
    whole = _best(dict(identifier.rank(" ".join(texts))))
    if whole.probability < _TELLING:
        return None, [None] * len(texts)
    return whole, [_of_part(rank, whole) for rank in ranks]


def _best(rank: dict[str, float]) -> Spoken:
    language = max(rank, key=rank.__getitem__)
    return Spoken(language, min(rank[language], 1.0))  # a softmax in float32 may end just above


def _of_part(rank: dict[str, float], whole: Spoken) -> Spoken | None:
    if not rank:
        return None
    best = _best(rank)
    return best if best.probability >= _TELLING else Spoken(whole.language, rank[whole.language])


@lru_cache(maxsize=16)
def _identifier(among: tuple[str, ...]) -> "LanguageIdentifier | None":
    """Return an identifier for these languages; None if it knows none of them."""
    with _lock:  # loading takes seconds and tens of megabytes, so once only
        whole = _load()
    known = [label for label in whole.labels if label in (among or NAMES)]
    if not known:
        return None
    narrowed = copy.copy(whole)
    narrowed.set_languages(known)
    return narrowed


@lru_cache(maxsize=1)
def _load() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
