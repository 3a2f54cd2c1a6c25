"""eSpeak NG: formant synthesis with many accents and voice variants, none of which sounds quite human."""

import math
from pathlib import Path
from typing import ClassVar

from training.synthesis.child import answer
from training.synthesis.program import Program
from training.synthesis.voice import Manner

_ACCENTS = (
    "en-us",
    "en-gb",
    "en-gb-x-rp",
    "en-gb-scotland",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-029",
    "en-us-nyc",
)
# Variants of which a model of human speech recognises over half of the words. Others are robots, whisper or clip.
_THROATS = (
    *("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "f1", "f2", "f3", "f4", "f5"),
    *("klatt", "klatt2", "klatt3", "klatt4", "klatt5", "klatt6"),
    *("Annie", "Denis", "Gene", "Gene2", "Henrique", "Hugo", "Mario", "Mike", "Nguyen", "Storm"),
    *("anika", "aunty", "benjamin", "caleb", "croak", "david", "edward", "edward2", "grandma", "grandpa"),
    *("iven2", "iven4", "marcelo", "max", "miguel", "paul", "quincy", "rob", "robert", "sandro"),
)
_WORDS_PER_MINUTE = 175
_MIDDLE_PITCH, _PITCH_OF_AN_OCTAVE = 50, 80


class Espeak(Program):
    """The program `espeak-ng`."""

    name = "espeak-ng"
    packages: ClassVar[dict[str, str]] = {
        name: "espeak-ng" for accent in _ACCENTS for name in (accent, *(f"{accent}+{throat}" for throat in _THROATS))
    }

    def installed(self) -> set[str]:
        """Return the voices whose accent and throat it has data for."""
        accents = {row.split()[1] for row in answer(["espeak-ng", "--voices=en"]).splitlines() if row.strip()}
        variants = answer(["espeak-ng", "--voices=variant"])
        throats = {word.removeprefix("!v/") for word in variants.split() if word.startswith("!v/")}
        return {name for name in self.packages if name.split("+")[0] in accents and set(name.split("+")[1:]) <= throats}

    def command(self, voice: str, manner: Manner, sentence: Path, wave: Path) -> list[str]:
        """Return the command that reads a sentence and writes a RIFF file."""
        speed = round(_WORDS_PER_MINUTE * manner.speed)
        pitch = round(_MIDDLE_PITCH + _PITCH_OF_AN_OCTAVE * math.log2(manner.pitch))
        return ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "-f", str(sentence), "-w", str(wave)]
