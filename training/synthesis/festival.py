"""Festival: two diphone voices and a statistical one."""

import re
from pathlib import Path
from typing import ClassVar

from training.synthesis.child import answer
from training.synthesis.program import Program
from training.synthesis.voice import Manner

_STATISTICAL = "cmu_us_slt_arctic_hts"
# The diphone voices: the mean of their fundamental frequency in Hz, and what Festival's models of intonation predict.
_MEAN_PITCH = 105
_MODEL_OF_PITCH = "(model_f0_mean 170) (model_f0_std 34)"


class Festival(Program):
    """The program `text2wave`, which comes with `festival`."""

    name = "festival"
    packages: ClassVar[dict[str, str]] = {
        _STATISTICAL: "festvox-us-slt-hts",
        "kal_diphone": "festvox-kallpc16k",
        "ked_diphone": "festvox-kdlpc16k",
    }

    def installed(self) -> set[str]:
        """Return the voices that it finds in its folders."""
        found = re.findall(r"[\w-]+", answer(["festival", "--batch", "(print (voice.list))"]))
        return set(found) & set(self.packages)

    def command(self, voice: str, manner: Manner, sentence: Path, wave: Path) -> list[str]:
        """Return the command that reads a sentence and writes a RIFF file."""
        if voice == _STATISTICAL:
            settings = [f'(set! hts_engine_params (append hts_engine_params (list (list "-r" {manner.speed:.3f}))))']
        else:
            mean = _MEAN_PITCH * manner.pitch
            settings = [
                f"(Parameter.set 'Duration_Stretch {1 / manner.speed:.3f})",
                f"(set! int_lr_params '((target_f0_mean {mean:.1f}) (target_f0_std 14) {_MODEL_OF_PITCH}))",
            ]
        command = ["text2wave"]
        for expression in (f"(voice_{voice})", *settings):
            command += ["-eval", expression]
        return [*command, "-o", str(wave), str(sentence)]
