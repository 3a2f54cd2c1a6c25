"""Synthesizing a sentence, and checking that the speech can be used."""

import numpy as np

from audio.samples import Samples
from training.synthesis.errors import UnusableSpeechError
from training.synthesis.voice import SAMPLE_RATE, Manner, Voice

_SHORTEST = 0.5
_SOFTEST_PEAK = 0.01
# Most samples at full scale, as a share.
_FULL_SCALE, _MOST_CLIPPED = 0.999, 0.001
# Bounds of characters per second, and seconds of silence around them. People read about 15 characters a second.
_SLOWEST, _FASTEST, _MOST_SILENCE = 3.0, 35.0, 1.0


def spoken(voice: Voice, manner: Manner, sentence: str) -> Samples:
    """Return a sentence as a voice says it.

    Args:
        voice: a voice of an installed synthesizer.
        manner: the manner.
        sentence: the sentence.

    Returns:
        Mono, float32 [n], at ``SAMPLE_RATE``.

    Raises:
        UnusableSpeechError: if the synthesizer fails or hangs, or the speech is silent, clipped, or too short or too
            long for the sentence.
    """
    samples = voice.synthesizer.say(voice.name, manner, sentence)
    check(samples, sentence)
    return samples


def check(samples: Samples, sentence: str) -> None:
    """Check that speech can be used.

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
