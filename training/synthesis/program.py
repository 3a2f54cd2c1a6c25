"""Synthesizers that are programs: a sentence in a file becomes speech in a file."""

from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from audio.decode import decode
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.samples import Samples
from training.synthesis.child import succeeds
from training.synthesis.errors import UnusableSpeechError
from training.synthesis.voice import SAMPLE_RATE, Manner

_LONGEST = 60.0


class Program(ABC):
    """A synthesizer that is run once for each sentence."""

    speeds: ClassVar[tuple[float, float]] = (0.75, 1.3)
    # A program takes a second or two for a sentence; this is for machines with much else to do.
    seconds_to_speak: ClassVar[float] = 60.0

    @abstractmethod
    def command(self, voice: str, manner: Manner, sentence: Path, wave: Path) -> list[str]:
        """Return the command that reads a file of one sentence and writes a RIFF file."""

    def say(self, voice: str, manner: Manner, sentence: str) -> Samples:
        """Return a sentence as a voice says it: mono, float32 [n], at ``SAMPLE_RATE``.

        Raises:
            UnusableSpeechError: if the program fails, or takes longer than it may.
        """
        with TemporaryDirectory(prefix="steno-") as folder:
            text, wave = Path(folder, "sentence.txt"), Path(folder, "speech.wav")
            text.write_text(sentence + "\n", encoding="utf-8")
            if not succeeds(self.command(voice, manner, text, wave), self.seconds_to_speak):
                raise UnusableSpeechError("the synthesizer failed")
            return _decoded(wave)


def _decoded(wave: Path) -> Samples:
    try:
        with wave.open("rb") as file:
            return decode(file, rate=SAMPLE_RATE, limits=AudioLimits(max_seconds=_LONGEST)).samples
    except (AudioError, OSError) as error:
        raise UnusableSpeechError("the synthesizer failed") from error
