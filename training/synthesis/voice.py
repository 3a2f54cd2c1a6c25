"""Voices, manners of speaking, and the interface of synthesizers."""

from dataclasses import dataclass
from typing import Protocol

from audio.samples import Samples

# Rate of all synthetic speech, in Hz.
SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True)
class Manner:
    """A manner of speaking; factors of 1 are the voice's own.

    Attributes:
        speed: factor of speed.
        pitch: factor of the fundamental frequency, if the synthesizer can change it.
    """

    speed: float = 1.0
    pitch: float = 1.0


class Synthesizer(Protocol):
    """Turns sentences into speech; several threads may use it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def packages(self) -> dict[str, str]:
        """The package of each of its voices, in a fixed order."""

    @property
    def speeds(self) -> tuple[float, float]:
        """The slowest and the fastest speed to use."""

    def installed(self) -> set[str]:
        """Return its installed voices; none if the synthesizer is not installed."""

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
        """Its unique name."""
        return f"{self.synthesizer.name}/{self.name}"

    @property
    def package(self) -> str:
        """The package that provides it."""
        return self.synthesizer.packages[self.name]
