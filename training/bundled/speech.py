"""Checks whether synthetic speech can be used."""

import numpy as np

from audio.samples import Samples
from training.bundled.errors import UnusableSpeechError
from training.bundled.flite import SAMPLE_RATE

_SHORTEST = 0.5
_SOFTEST_PEAK = 0.01
# Most samples at full scale, as a share.
_FULL_SCALE, _MOST_CLIPPED = 0.999, 0.001
# Bounds of characters per second, and seconds of silence around them. People read about 15 characters a second.
_SLOWEST, _FASTEST, _MOST_SILENCE = 3.0, 35.0, 1.0


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
