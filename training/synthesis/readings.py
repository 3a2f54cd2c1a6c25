"""Which sentence is said, by whom and how: a function of the seed and the number of the clip, and of nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.synthesis.voice import Manner, Voice

# From slow to fast and from low to high, as factors; what lies between is drawn on a logarithmic scale.
_SPEEDS = (0.75, 1.3)
_PITCHES = (0.8, 1.25)


@dataclass(frozen=True, slots=True)
class Reading:
    """A sentence, who says it, and how."""

    sentence: str
    voice: Voice
    manner: Manner


class Readings:
    """Draws readings. Every sentence is said once before any is said again.

    A synthesizer is drawn first and then one of its voices, so the few voices that sound most human are heard as
    often as the many that differ by a setting.
    """

    def __init__(self, sentences: Sequence[str], voices: Sequence[Voice], seed: int) -> None:
        self._sentences = sentences
        self._voices = voices
        self._seed = seed
        self._order = np.random.default_rng(seed).permutation(len(sentences))
        self._chances = _chances(voices)

    def draw(self, number: int, attempt: int = 0) -> Reading:
        """Return the reading of a clip; its attempts have its sentence in other voices and manners."""
        random = np.random.default_rng([self._seed, number, attempt])
        voice = self._voices[random.choice(len(self._voices), p=self._chances)]
        manner = Manner(speed=_between(random, *_SPEEDS), pitch=_between(random, *_PITCHES))
        return Reading(self._sentences[self._order[number % len(self._order)]], voice, manner)


def _between(random: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def _chances(voices: Sequence[Voice]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    synthesizers = [voice.synthesizer.name for voice in voices]
    return np.array([1 / (len(set(synthesizers)) * synthesizers.count(name)) for name in synthesizers])
