"""The reading of each clip (sentence, voice and manner): a function of the seed and the clip's number."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.synthesis.voice import Manner, Voice

# Range of the factor of pitch, drawn on a logarithmic scale.
_PITCHES = (0.8, 1.25)


@dataclass(frozen=True, slots=True)
class Reading:
    """A sentence, its voice and its manner."""

    sentence: str
    voice: Voice
    manner: Manner


class Readings:
    """Draws readings. Every sentence is said once before any is said again.

    A synthesizer is drawn first and then one of its voices, so all synthesizers are equally frequent, however many
    voices they have.

    Args:
        sentences: the sentences.
        voices: the voices.
        seed: seed of all choices.
        fragments: share of the clips with only some words of their sentence, one or more, as people say to machines.
    """

    def __init__(self, sentences: Sequence[str], voices: Sequence[Voice], seed: int, fragments: float = 0.0) -> None:
        self._sentences = sentences
        self._voices = voices
        self._seed = seed
        self._fragments = fragments
        self._order = np.random.default_rng(seed).permutation(len(sentences))
        self._chances = _chances(voices)

    def draw(self, number: int, attempt: int = 0) -> Reading:
        """Return the reading of a clip; further attempts have the same sentence with another voice and manner."""
        random = np.random.default_rng([self._seed, number, attempt])
        voice = self._voices[random.choice(len(self._voices), p=self._chances)]
        manner = Manner(speed=_between(random, *voice.synthesizer.speeds), pitch=_between(random, *_PITCHES))
        return Reading(self._sentence(number), voice, manner)

    def _sentence(self, number: int) -> str:
        sentence: str = self._sentences[self._order[number % len(self._order)]]
        # Not [seed, number], which NumPy takes for [seed, number, 0], the seed of the first attempt: one random number
        # would choose both fragments and voices, so that only the first voices read fragments.
        random = np.random.default_rng([self._seed, number, 0, 1])
        if random.random() >= self._fragments:
            return sentence
        words = sentence.split()
        size = random.integers(1, len(words), endpoint=True)
        first = random.integers(0, len(words) - size, endpoint=True)
        return " ".join(words[first : first + size])


def _between(random: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def _chances(voices: Sequence[Voice]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    synthesizers = [voice.synthesizer.name for voice in voices]
    return np.array([1 / (len(set(synthesizers)) * synthesizers.count(name)) for name in synthesizers])
