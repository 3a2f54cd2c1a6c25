"""Deciding on the language of a recording from what an identifier says of its parts. Nothing here needs torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transcripts.prompt import ENGLISH

# The probability of each language in an utterance.
Probabilities = dict[str, float]

# An identifier gets the beginning of an utterance, up to this length.
IDENTIFIED_SECONDS = 30.0
# A part has another language than its recording only if the identifier is this sure and the part is this long: similar
# languages and short parts are often mistaken.
_SURE = 0.8
_LEAST_SECONDS = 3.0

# Codes that ISO 639-1 has withdrawn, and data sets still use.
_RENAMED = {"iw": "he", "jw": "jv", "in": "id", "ji": "yi"}


def language_of_label(label: str) -> str:
    """Return the code of a label's language: "zh" for "zh-CN", "he" for "iw"; a label without one, unchanged."""
    language = label.replace("_", "-").partition("-")[0].lower()
    if len(language) not in (2, 3):
        return label
    return _RENAMED.get(language, language)


def possible_languages(languages: Sequence[str], target_language: str | None) -> list[str]:
    """Return the spoken languages that are possible with a target: models translate from English and into it."""
    if target_language in (None, ENGLISH):
        return list(languages)
    return [language for language in languages if language in (ENGLISH, target_language)]


class Spoken(NamedTuple):
    """A language, and its probability, 0 to 1."""

    language: str
    probability: float


@dataclass(slots=True)
class LanguageDecision:
    """The languages of a recording's parts, decided in their order.

    The recording's language so far is the one with the highest mean probability in the parts up to this one, weighted
    by their lengths. A part has that language, unless it is long and the identifier is sure of another one.

    Args:
        possible: the languages that may be chosen.
        is_exhaustive: whether no other language is spoken. If so, the probabilities of ``possible`` are scaled to add
            up to 1.
    """

    possible: Sequence[str]
    is_exhaustive: bool = False
    _seconds: float = field(default=0.0, init=False)
    _sums: dict[str, float] = field(default_factory=dict, init=False)

    def add(self, probabilities: Mapping[str, float], seconds: float) -> Spoken:
        """Return the language of the next part, which has more than 0 seconds, and how probable it is there."""
        part = {language: probabilities.get(language, 0.0) for language in self.possible}
        if self.is_exhaustive and (total := sum(part.values())) > 0:
            part = {language: probability / total for language, probability in part.items()}
        self._seconds += seconds
        for language, probability in part.items():
            self._sums[language] = self._sums.get(language, 0.0) + probability * seconds
        best = max(part, key=part.__getitem__)
        whole = self.whole
        assert whole
        if part[best] < _SURE or seconds < _LEAST_SECONDS:
            best = whole.language
        return Spoken(best, part[best])

    @property
    def whole(self) -> Spoken | None:
        """The language of the recording so far, and its mean probability; None before the first part."""
        if not self._sums:
            return None
        best = max(self._sums, key=self._sums.__getitem__)
        return Spoken(best, self._sums[best] / self._seconds)
