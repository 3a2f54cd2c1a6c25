"""A voice, the manner in which it speaks, and what makes it speak."""

from dataclasses import dataclass
from typing import Protocol

from audio.samples import Samples

# Of all speech that is made, in Hz.
SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True)
class Manner:
    """How a sentence is said; 1 is the voice's own.

    Attributes:
        speed: of speaking.
        pitch: factor on the fundamental frequency, where the synthesizer can change it.
    """

    speed: float = 1.0
    pitch: float = 1.0


class Synthesizer(Protocol):
    """Turns sentences into speech, in several threads at a time."""

    @property
    def name(self) -> str:
        """What its voices are known by."""

    @property
    def packages(self) -> dict[str, str]:
        """The package of each of its voices, in a fixed order."""

    @property
    def speeds(self) -> tuple[float, float]:
        """The slowest and the fastest that it is asked for."""

    def installed(self) -> set[str]:
        """Return which of its voices are here; none if the synthesizer is not."""

    def say(self, voice: str, manner: Manner, sentence: str) -> Samples:
        """Return a sentence as a voice says it: mono, float32 [n], at ``SAMPLE_RATE``.

        Raises:
            UnusableSpeechError: if it fails or hangs.
        """


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of a synthesizer."""

    synthesizer: Synthesizer
    name: str

    @property
    def speaker(self) -> str:
        """What tells it from all other voices."""
        return f"{self.synthesizer.name}/{self.name}"

    @property
    def package(self) -> str:
        """The package that it comes with."""
        return self.synthesizer.packages[self.name]
