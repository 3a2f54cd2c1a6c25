"""Flite, a speech synthesizer of Debian: statistical voices of three Arctic speakers, and a diphone voice twice."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from audio.decode import decode
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.samples import Samples
from training.bundled.errors import SynthesisError, UnusableSpeechError

# Rate of all synthetic speech, in Hz.
SAMPLE_RATE = 16_000

_LONGEST = 60.0
_SECONDS_TO_ANSWER = 20.0


@dataclass(frozen=True, slots=True)
class Manner:
    """A manner of speaking; factors of 1 are the voice's own.

    Attributes:
        speed: factor of speed.
        pitch: factor of the fundamental frequency, of voices that can change it.
    """

    speed: float = 1.0
    pitch: float = 1.0


class Flite:
    """The program `flite`; several threads may use it.

    Attributes:
        mean_pitch: the mean of each voice's fundamental frequency in Hz; that of rms cannot be changed.
    """

    name: ClassVar[str] = "flite"
    mean_pitch: ClassVar[dict[str, int | None]] = {"slt": 172, "awb": 128, "rms": None, "kal16": 90, "kal": 90}
    # It takes a second or two for a sentence; this is for machines with much else to do.
    seconds_to_speak: ClassVar[float] = 60.0

    def voices(self) -> list[str]:
        """Return its voices, in a fixed order.

        Raises:
            SynthesisError: if it is not installed, or hangs, or has none of them.
        """
        try:
            done = subprocess.run(["flite", "-lv"], capture_output=True, timeout=_SECONDS_TO_ANSWER, check=True)  # noqa: S607
            there = done.stdout.decode("utf-8", errors="replace").partition(":")[2].split()
        except (OSError, subprocess.SubprocessError):
            there = []
        voices = [voice for voice in self.mean_pitch if voice in there]
        if not voices:
            raise SynthesisError("flite is not installed; Debian's package flite has it")
        return voices

    def say(self, voice: str, manner: Manner, sentence: str) -> Samples:
        """Return a sentence as a voice says it: mono, float32 [n], at ``SAMPLE_RATE``.

        Raises:
            UnusableSpeechError: if it fails, or takes longer than it may.
        """
        with TemporaryDirectory(prefix="steno-") as folder:
            text, wave = Path(folder, "sentence.txt"), Path(folder, "speech.wav")
            text.write_text(sentence + "\n", encoding="utf-8")
            # Its output is not read: a pipe held open by a grandchild would be waited for in spite of the timeout.
            nothing = subprocess.DEVNULL
            try:
                subprocess.run(  # noqa: S603  # arguments of ours, the sentence is in a file
                    self.command(voice, manner, text, wave),
                    stdin=nothing,
                    stdout=nothing,
                    stderr=nothing,
                    timeout=self.seconds_to_speak,
                    check=True,
                )
                with wave.open("rb") as file:
                    return decode(file, rate=SAMPLE_RATE, limits=AudioLimits(max_seconds=_LONGEST)).samples
            except (OSError, subprocess.SubprocessError, AudioError) as error:
                raise UnusableSpeechError("the synthesizer failed") from error

    def command(self, voice: str, manner: Manner, sentence: Path, wave: Path) -> list[str]:
        """Return the command that reads a file of one sentence and writes a RIFF file."""
        command = ["flite", "-voice", voice, "--setf", f"duration_stretch={1 / manner.speed:.3f}"]
        if mean_pitch := self.mean_pitch[voice]:
            command += ["--setf", f"int_f0_target_mean={mean_pitch * manner.pitch:.1f}"]
        return [*command, "-f", str(sentence), "-o", str(wave)]
