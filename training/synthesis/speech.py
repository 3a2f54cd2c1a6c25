"""One sentence said by one voice, and whether it is fit to learn from."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from audio.decode import decode
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.resample import Samples
from training.synthesis.child import succeeds
from training.synthesis.errors import UnusableSpeechError
from training.synthesis.voice import Manner, Voice

SAMPLE_RATE = 16_000

# A synthesizer takes a second or two for a sentence; this is for machines with much else to do.
_SECONDS_TO_SPEAK = 60.0
_SHORTEST, _LONGEST = 0.5, 60.0
_SOFTEST_PEAK = 0.01
# Samples that lie at full scale, of all.
_FULL_SCALE, _MOST_CLIPPED = 0.999, 0.001
# Characters per second. People read about 15; short sentences are slower, because of the silence around them.
_SLOWEST, _FASTEST = 3.0, 35.0


def spoken(voice: Voice, manner: Manner, sentence: str, seconds: float = _SECONDS_TO_SPEAK) -> Samples:
    """Return a sentence as a voice says it.

    Args:
        voice: of a synthesizer that is installed.
        manner: how it is said.
        sentence: what is said.
        seconds: how long the synthesizer may take.

    Returns:
        Mono, float32 [n], at ``SAMPLE_RATE``.

    Raises:
        UnusableSpeechError: if the synthesizer fails or hangs, or what it says is silent, clipped, or too short or too
            long for the sentence.
    """
    with TemporaryDirectory(prefix="steno-") as folder:
        text, wave = Path(folder, "sentence.txt"), Path(folder, "speech.wav")
        text.write_text(sentence + "\n", encoding="utf-8")
        if not succeeds(voice.command(manner, text, wave), seconds):
            raise UnusableSpeechError("the synthesizer failed")
        samples = _decoded(wave)
    check(samples, sentence)
    return samples


def check(samples: Samples, sentence: str) -> None:
    """Refuse speech that is not fit to learn from.

    Raises:
        UnusableSpeechError: if it is silent, clipped, or too short or too long for its sentence.
    """
    duration = len(samples) / SAMPLE_RATE
    if duration < _SHORTEST:
        raise UnusableSpeechError("too short")
    peaks = np.abs(samples)
    if peaks.max() < _SOFTEST_PEAK:
        raise UnusableSpeechError("silent")
    if np.mean(peaks >= _FULL_SCALE) > _MOST_CLIPPED:
        raise UnusableSpeechError("clipped")
    if not _SLOWEST <= len(sentence) / duration <= _FASTEST:
        raise UnusableSpeechError("not at the pace of speech")


def _decoded(wave: Path) -> Samples:
    try:
        with wave.open("rb") as file:
            return decode(file, rate=SAMPLE_RATE, limits=AudioLimits(max_seconds=_LONGEST)).samples
    except (AudioError, OSError) as error:
        raise UnusableSpeechError("the synthesizer failed") from error
