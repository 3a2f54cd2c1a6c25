"""The reading of each clip (sentence, voice and manner): a function of the seed and the clip's number."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.bundled.flite import Manner

# Ranges of the factors of speed and pitch, drawn on logarithmic scales.
_SPEEDS = (0.75, 1.3)
_PITCHES = (0.8, 1.25)


@dataclass(frozen=True, slots=True)
class Reading:
    """A sentence, its voice and its manner."""

    sentence: str
    voice: str
    manner: Manner


class Readings:
    """Draws readings. Every sentence is said once before any is said again.

    Args:
        sentences: the sentences.
        voices: the voices, each as frequent as the others.
        seed: seed of all choices.
    """

    def __init__(self, sentences: Sequence[str], voices: Sequence[str], seed: int) -> None:
        self._sentences = sentences
        self._voices = voices
        self._seed = seed
        self._order = np.random.default_rng(seed).permutation(len(sentences))

    def draw(self, number: int, attempt: int = 0) -> Reading:
        """Return the reading of a clip; further attempts have the same sentence with another voice and manner."""
        random = np.random.default_rng([self._seed, number, attempt])
        voice = self._voices[int(random.integers(len(self._voices)))]
        manner = Manner(speed=_between(random, *_SPEEDS), pitch=_between(random, *_PITCHES))
        return Reading(self._sentences[int(self._order[number % len(self._order)])], voice, manner)


def _between(random: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))
