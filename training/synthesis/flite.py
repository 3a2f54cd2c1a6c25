"""Flite: three statistical voices of the Arctic speakers and a diphone voice, wide and narrow."""

from pathlib import Path
from typing import ClassVar

from training.synthesis.child import answer
from training.synthesis.program import Program
from training.synthesis.voice import Manner

# The mean of the fundamental frequency in Hz; that of rms cannot be changed.
_MEAN_PITCH = {"slt": 172, "awb": 128, "rms": None, "kal16": 90, "kal": 90}


class Flite(Program):
    """The program `flite`."""

    name = "flite"
    packages: ClassVar[dict[str, str]] = dict.fromkeys(_MEAN_PITCH, "flite")

    def installed(self) -> set[str]:
        """Return the voices that were built into it."""
        _, _, voices = answer(["flite", "-lv"]).partition(":")
        return set(voices.split()) & set(self.packages)

    def command(self, voice: str, manner: Manner, sentence: Path, wave: Path) -> list[str]:
        """Return the command that reads a sentence and writes a RIFF file."""
        command = ["flite", "-voice", voice, "--setf", f"duration_stretch={1 / manner.speed:.3f}"]
        mean_pitch = _MEAN_PITCH[voice]
        if mean_pitch:
            command += ["--setf", f"int_f0_target_mean={mean_pitch * manner.pitch:.1f}"]
        return [*command, "-f", str(sentence), "-o", str(wave)]
