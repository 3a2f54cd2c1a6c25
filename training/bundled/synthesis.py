"""Speech for the bundled model: sentences that Flite reads become FLAC files and a manifest for training.

The seed and a clip's number decide its sentence, voice and manner.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from audio.samples import Samples
from models.device.resources import processors
from training.ahead import ahead
from training.bundled import flite
from training.bundled.flite import SAMPLE_RATE, Reading, UnusableSpeechError
from training.errors import TrainingError
from training.replaced import replaced

_CLIPS_IN_A_FOLDER = 1000
# Ranges of the factors of speed and pitch, drawn on logarithmic scales.
_SPEEDS, _PITCHES = (0.75, 1.3), (0.8, 1.25)
# Attempts at a sentence before it is left out, and sentences left out in a row before the run fails.
_ATTEMPTS, _TOO_MANY_LEFT_OUT = 3, 20


@dataclass(slots=True)
class Tally:
    """What was made: clips and their seconds, sentences left out, and refused attempts by reason."""

    clips: int = 0
    seconds: float = 0.0
    left_out: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Readings:
    """Draws the reading of each clip. Every sentence is said once before any is said again."""

    def __init__(self, sentences: Sequence[str], voices: Sequence[str], seed: int) -> None:
        self._sentences, self._voices, self._seed = sentences, voices, seed
        self._order = np.random.default_rng(seed).permutation(len(sentences))

    def draw(self, number: int, attempt: int = 0) -> Reading:
        """Return the reading of a clip; further attempts have the same sentence with another voice and manner."""
        random = np.random.default_rng([self._seed, number, attempt])
        voice = self._voices[int(random.integers(len(self._voices)))]
        speed, pitch = (float(np.exp(random.uniform(*np.log(bounds)))) for bounds in (_SPEEDS, _PITCHES))
        return Reading(self._sentences[int(self._order[number % len(self._order)])], voice, speed, pitch)


def synthesize(
    readings: Readings, out: Path, *, seconds: float, say: Callable[[Reading], Samples] = flite.say
) -> Tally:
    """Write clips until there are ``seconds`` of speech, and at last the manifest of them; files there are replaced.

    Raises:
        TrainingError: if 20 sentences in a row are left out.
        OSError: if a file cannot be written.
    """

    def read(number: int) -> tuple[Reading, Samples | None, list[str]]:
        """Return the speech of a clip, None if all attempts failed, and why attempts failed."""
        refused: list[str] = []
        for attempt in range(_ATTEMPTS):
            reading = readings.draw(number, attempt)
            try:
                return reading, say(reading), refused
            except UnusableSpeechError as error:
                refused.append(str(error))
        return reading, None, refused

    tally, in_a_row, jobs, total = Tally(), 0, processors(), round(seconds)
    out.mkdir(parents=True, exist_ok=True)
    with (
        replaced(out / "manifest.jsonl") as manifest,
        closing(ahead(read, count(), threads=jobs, held=2 * jobs)) as found,
        tqdm(total=total, unit="s", disable=None) as bar,
    ):
        for number, (reading, samples, refused) in enumerate(found):
            tally.refused.update(refused)
            if samples is not None:
                manifest.write(_written(out, number, reading, samples).encode())
                tally.clips += 1
                tally.seconds += len(samples) / SAMPLE_RATE
                bar.update(min(total, int(tally.seconds)) - bar.n)
            else:
                tally.left_out += 1
            in_a_row = 0 if samples is not None else in_a_row + 1
            if in_a_row == _TOO_MANY_LEFT_OUT:
                raise TrainingError(f"{in_a_row} sentences in a row came out wrong: {refused[-1]}")
            if tally.seconds >= seconds:
                break
    return tally


def _written(out: Path, number: int, reading: Reading, samples: Samples) -> str:
    """Write a clip, and return its line of the manifest."""
    name = f"clips/{number // _CLIPS_IN_A_FOLDER:04}/{number:07}.flac"
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(out / name, samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    fields = {
        "audio": name,
        "text": reading.sentence,
        "duration": len(samples) / SAMPLE_RATE,
        "source": "flite",
        "speaker": f"flite/{reading.voice}",
        "split": "train",
        "number": number,
        "speed": round(reading.speed, 3),
        "pitch": round(reading.pitch, 3),
    }
    return json.dumps(fields, ensure_ascii=False) + "\n"
