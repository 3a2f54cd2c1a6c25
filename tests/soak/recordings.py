"""The uploads of a soak: speech of many lengths in many containers, always the same."""

import io
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "austen.flac"
_SECONDS = (0.3, 0.7, 1.1, 2.0, 3.5, 5.0, 7.6, 11.0, 19.0, 33.0, 75.0)
_FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
}
# FFmpeg writes them here, and reads them in children of the service.
_BY_FFMPEG = {"m4a": ("-f", "ipod", "-c:a", "aac"), "webm": ("-f", "webm", "-c:a", "libopus")}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A file."""

    name: str  # of the file
    content: bytes  # its bytes
    seconds: float  # its length


def recordings(folder: Path) -> list[Recorded]:
    """Return every length, each in one container after the other."""
    speech, rate = soundfile.read(SAMPLE, dtype="float32")
    endless = np.tile(speech, 20)
    kinds = [*_FORMATS, *(_BY_FFMPEG if shutil.which("ffmpeg") else ())]
    made = []
    for number, seconds in enumerate(_SECONDS):
        samples = endless[number * 4000 :][: int(seconds * rate)]
        for kind in {kinds[number % len(kinds)], kinds[(number + 4) % len(kinds)]}:
            made.append(Recorded(f"{seconds:g}.{kind}", _encoded(samples, rate, kind, folder), seconds))
    return sorted(made, key=lambda one: one.name)


def _encoded(samples: np.ndarray, rate: int, kind: str, folder: Path) -> bytes:
    file = io.BytesIO()
    container, subtype = _FORMATS.get(kind, ("WAV", "PCM_16"))
    soundfile.write(file, samples, rate, format=container, subtype=subtype)
    if kind not in _BY_FFMPEG:
        return file.getvalue()
    made = folder / f"made.{kind}"
    command = ("ffmpeg", "-v", "error", "-y", "-i", "pipe:0", *_BY_FFMPEG[kind], str(made))
    subprocess.run(command, input=file.getvalue(), check=True)
    return made.read_bytes()
