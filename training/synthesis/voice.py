"""A voice, the manner in which it speaks, and the program that makes it speak."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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
    """A program that turns a sentence in a file into speech in a file."""

    @property
    def name(self) -> str:
        """What its voices are known by."""

    @property
    def packages(self) -> dict[str, str]:
        """The Debian package of each of its voices, in a fixed order."""

    def installed(self) -> set[str]:
        """Ask the program which of its voices are here; none if the program is not."""

    def command(self, voice: str, manner: Manner, sentence: Path, wave: Path) -> list[str]:
        """Return the command that reads a file of one sentence and writes a RIFF file."""


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
        """The Debian package that it comes with."""
        return self.synthesizer.packages[self.name]

    def command(self, manner: Manner, sentence: Path, wave: Path) -> list[str]:
        """Return the command that makes it say what is in a file."""
        return self.synthesizer.command(self.name, manner, sentence, wave)
