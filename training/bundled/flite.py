"""Flite, a speech synthesizer of Debian: statistical voices of three Arctic speakers, and a diphone voice twice."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from audio.decode import decode
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.samples import Samples
from training.errors import TrainingError

# Rate of all synthetic speech, in Hz.
SAMPLE_RATE = 16_000

# The mean of each voice's fundamental frequency in Hz; that of rms cannot be changed.
_MEAN_PITCH = {"slt": 172, "awb": 128, "rms": None, "kal16": 90, "kal": 90}
_SECONDS_TO_ANSWER = 20.0
# It takes a second or two for a sentence; this is for machines with much else to do.
_SECONDS_TO_SPEAK = 60.0
_SHORTEST, _LONGEST = 0.5, 60.0
_SOFTEST_PEAK = 0.01
# Most samples at full scale, as a share.
_FULL_SCALE, _MOST_CLIPPED = 0.999, 0.001
# Bounds of characters per second, and seconds of silence around them. People read about 15 characters a second.
_SLOWEST, _FASTEST, _MOST_SILENCE = 3.0, 35.0, 1.0


class UnusableSpeechError(Exception):
    """The speech for a sentence cannot be used. The message is one of a few reasons."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A sentence, its voice and its manner: factors of speed and, of voices that can change it, of pitch."""

    sentence: str
    voice: str
    speed: float = 1.0
    pitch: float = 1.0


def voices() -> list[str]:
    """Return Flite's voices, in a fixed order.

    Raises:
        TrainingError: if it is not installed, or hangs, or has none of them.
    """
    try:
        done = subprocess.run(["flite", "-lv"], capture_output=True, timeout=_SECONDS_TO_ANSWER, check=True)  # noqa: S607
        there = done.stdout.decode("utf-8", errors="replace").partition(":")[2].split()
    except (OSError, subprocess.SubprocessError):
        there = []
    found = [voice for voice in _MEAN_PITCH if voice in there]
    if not found:
        raise TrainingError("flite is not installed; Debian's package flite has it")
    return found


def say(reading: Reading) -> Samples:
    """Return a sentence as a voice says it: mono, float32 [n], at ``SAMPLE_RATE``.

    Raises:
        UnusableSpeechError: if Flite fails or takes longer than it may, or its speech is not fit to learn from.
    """
    with TemporaryDirectory(prefix="steno-") as folder:
        text, wave = Path(folder, "sentence.txt"), Path(folder, "speech.wav")
        text.write_text(reading.sentence + "\n", encoding="utf-8")
        command = ["flite", "-voice", reading.voice, "--setf", f"duration_stretch={1 / reading.speed:.3f}"]
        if mean_pitch := _MEAN_PITCH[reading.voice]:
            command += ["--setf", f"int_f0_target_mean={mean_pitch * reading.pitch:.1f}"]
        command += ["-f", str(text), "-o", str(wave)]
        # Its output is not read: a pipe held open by a grandchild would be waited for in spite of the timeout.
        nothing = subprocess.DEVNULL
        try:
            subprocess.run(  # noqa: S603  # arguments of ours, the sentence is in a file
                command, stdin=nothing, stdout=nothing, stderr=nothing, timeout=_SECONDS_TO_SPEAK, check=True
            )
            with wave.open("rb") as file:
                samples = decode(file, rate=SAMPLE_RATE, limits=AudioLimits(max_seconds=_LONGEST)).samples
        except (OSError, subprocess.SubprocessError, AudioError) as error:
            raise UnusableSpeechError("the synthesizer failed") from error
    check(samples, reading.sentence)
    return samples


def check(samples: Samples, sentence: str) -> None:
    """Check that speech can be used.

    Raises:
        UnusableSpeechError: if it is silent, clipped, or too short or too long for its sentence.
    """
    duration = len(samples) / SAMPLE_RATE
    if duration < _SHORTEST:
        raise UnusableSpeechError("too short")
    peaks = np.abs(samples)
    if peaks.max() < _SOFTEST_PEAK:
        raise UnusableSpeechError("silent")
    if np.mean(peaks >= _FULL_SCALE) > _MOST_CLIPPED:
        raise UnusableSpeechError("clipped")
    if not len(sentence) / _FASTEST <= duration <= len(sentence) / _SLOWEST + _MOST_SILENCE:
        raise UnusableSpeechError("not at the pace of speech")
