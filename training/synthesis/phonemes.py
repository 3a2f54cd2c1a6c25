"""English as Kokoro reads it: phonemes, and their numbers."""

import re

from training.synthesis.child import answer
from training.synthesis.errors import UnusableSpeechError

# Differences of Kokoro's spelling from eSpeak NG's.
_SPELLINGS = (
    *(("eɪ", "A"), ("aɪ", "I"), ("aʊ", "W"), ("oʊ", "O"), ("ɔɪ", "Y"), ("dʒ", "ʤ"), ("tʃ", "ʧ")),
    *(("ɜː", "ɜɹ"), ("ɚ", "əɹ"), ("r", "ɹ"), ("ɐ", "ə"), ("ɾ", "T"), ("ʔ", "t"), ("n̩", "ᵊn"), ("o", "ɔ"), ("ː", "")),
)
# The phonemes of English, and Kokoro-82M v1.0's numbers of them.
_SIGNS = " AIOTWYᵊabdefhijklmnpstuvwxzɑɒæɔðʤəɛɜɡɪŋθɹʃʧʊʌʒˈˌᵻ"
_NUMBERS = (
    *(16, 24, 25, 31, 36, 39, 41, 42, 43, 44, 46, 47, 48, 50, 51, 52, 53, 54, 55),
    *(56, 58, 61, 62, 63, 64, 65, 66, 68, 69, 71, 72, 76, 81, 82, 83, 86, 87, 92),
    *(102, 112, 119, 123, 131, 133, 135, 138, 147, 156, 157, 177),
)
_NUMBER_OF = dict(zip(_SIGNS, _NUMBERS, strict=True))
# What eSpeak NG writes before and after words of another language, such as (hi) and (en-us).
_LANGUAGE = re.compile(r"\([a-z-]+\)")


def phonemes(sentence: str) -> str:
    """Return the phonemes of a sentence, in Kokoro's spelling.

    Raises:
        UnusableSpeechError: if eSpeak NG fails.
    """
    said = answer(["espeak-ng", "-q", "--ipa", "-v", "en-us", "--stdin"], sentence + "\n")
    signs = " ".join(_LANGUAGE.sub("", said).split())
    if not signs:
        raise UnusableSpeechError("the synthesizer failed")
    for theirs, ours in _SPELLINGS:
        signs = signs.replace(theirs, ours)
    return signs


def numbers(phonemes: str) -> list[int]:
    """Return the numbers of phonemes; signs that are not of English have none."""
    return [_NUMBER_OF[sign] for sign in phonemes if sign in _NUMBER_OF]
