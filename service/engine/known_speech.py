"""A clip of the package, transcribed by the fast paths of a GPU and by plain operations: are the words the same?

Fast paths are compared one by one before they are used, with random numbers. This is what they do together, with
speech.
"""

import logging
import re
from collections.abc import Callable
from pathlib import Path

from audio.limits import AudioLimits
from audio.samples import Samples

log = logging.getLogger("steno.engine")

PATH = "known_speech"  # its name beside those of fast paths
_CLIP = Path(__file__).parents[2] / "samples" / "austen.flac"

Transcribe = Callable[[Samples], str]


def clip(rate: int) -> Samples:
    """Return six seconds of English, mono, in the given rate."""
    from audio.decode import decode  # loads the decoding libraries, which an engine on a CPU does without

    with _CLIP.open("rb") as file:
        return decode(file, rate=rate, limits=AudioLimits()).samples


def clip_text() -> str:
    """Return what is said there."""
    return _CLIP.with_suffix(".txt").read_text(encoding="utf-8").strip()


def has_same_words(fast: str, plain: str, *, is_bundled: bool) -> bool:
    """Return whether two texts of the clip have the same words, for the bundled model those of the clip."""
    wanted = {tuple(_words(plain)), *([tuple(_words(clip_text()))] if is_bundled else [])}
    return wanted == {tuple(_words(fast))}


def known_speech(model: str, rate: int, fast: Transcribe, plain: Transcribe, *, is_bundled: bool) -> str | None:
    """Transcribe the clip twice, at the model's sample rate; other words are a warning in the log with both texts.

    Of the bundled model, the words for the clip are known.

    Returns:
        "used" if the words are the same, "disagreed" if not; None if plain operations fail, which says nothing.
    """
    samples = clip(rate)
    found = fast(samples)
    try:
        wanted = plain(samples)
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        log.warning("known speech cannot be compared", extra={"model": model, "why": str(error)})
        return None
    if has_same_words(found, wanted, is_bundled=is_bundled):
        return "used"
    texts = {"text": found, "plain_text": wanted} | ({"said": clip_text()} if is_bundled else {})
    log.warning("known speech has other words by plain operations", extra={"model": model} | texts)
    return "disagreed"


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())
