"""One sentence said by one voice, and whether it is fit to learn from."""

import numpy as np

from audio.samples import Samples
from training.synthesis.errors import UnusableSpeechError
from training.synthesis.voice import SAMPLE_RATE, Manner, Voice

_SHORTEST = 0.5
_SOFTEST_PEAK = 0.01
# Samples that lie at full scale, of all.
_FULL_SCALE, _MOST_CLIPPED = 0.999, 0.001
# Characters per second, and seconds of silence around them. People read about 15 characters.
_SLOWEST, _FASTEST, _MOST_SILENCE = 3.0, 35.0, 1.0


def spoken(voice: Voice, manner: Manner, sentence: str) -> Samples:
    """Return a sentence as a voice says it.

    Args:
        voice: of a synthesizer that is installed.
        manner: how it is said.
        sentence: what is said.

    Returns:
        Mono, float32 [n], at ``SAMPLE_RATE``.

    Raises:
        UnusableSpeechError: if the synthesizer fails or hangs, or what it says is silent, clipped, or too short or too
            long for the sentence.
    """
    samples = voice.synthesizer.say(voice.name, manner, sentence)
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
    if not len(sentence) / _FASTEST <= duration <= len(sentence) / _SLOWEST + _MOST_SILENCE:
        raise UnusableSpeechError("not at the pace of speech")
