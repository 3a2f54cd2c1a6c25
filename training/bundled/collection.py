"""A collection of synthetic clips on disk: FLAC files and a manifest for training.

A clip is added to the manifest after its file is whole, and a last line that was cut short is removed when writing
begins, so a writer that was killed can continue.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import soundfile

from audio.samples import Samples
from training.bundled.errors import SynthesisError
from training.bundled.flite import SAMPLE_RATE
from training.bundled.readings import Reading

MANIFEST = "manifest.jsonl"

_ORIGIN = "origin.json"
_LOCK = ".lock"
_CLIPS_IN_A_FOLDER = 1000


@dataclass(frozen=True, slots=True)
class Origin:
    """The parameters of a collection. They and the number of a clip determine the clip.

    Attributes:
        seed: seed of all choices.
        sentences: digest of the sentences.
        voices: the voices.
    """

    seed: int
    sentences: str
    voices: list[str]


class Collection:
    """Adds clips to a locked folder.

    Attributes:
        clips: number of clips.
        seconds: their total length.
        next_number: number of the next clip; some numbers may be skipped.
    """

    def __init__(self, folder: Path, manifest: BinaryIO) -> None:
        self.clips = 0
        self.seconds = 0.0
        self.next_number = 0
        self._folder = folder
        self._manifest = manifest
        self._read()

    def add(self, number: int, source: str, reading: Reading, samples: Samples) -> None:
        """Write a clip of a source, and add it to the manifest.

        Raises:
            OSError: if it cannot be written.
        """
        name = f"clips/{number // _CLIPS_IN_A_FOLDER:04}/{number:07}.flac"
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            soundfile.write(file, samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
        fresh.replace(path)
        duration = len(samples) / SAMPLE_RATE
        self._manifest.write(_line(number, name, source, reading, duration))
        self._manifest.flush()
        self._count(number, duration)

    def _read(self) -> None:
        """Count the clips in the manifest, and remove an incomplete last line."""
        end = 0
        for line in self._manifest:
            if not line.endswith(b"\n"):
                break
            try:
                fields = json.loads(line)
                self._count(int(fields["number"]), float(fields["duration"]))
            except (ValueError, KeyError, TypeError) as error:
                raise SynthesisError(f"{self._folder / MANIFEST} is damaged") from error
            end += len(line)
        self._manifest.seek(end)
        self._manifest.truncate()

    def _count(self, number: int, duration: float) -> None:
        self.clips += 1
        self.seconds += duration
        self.next_number = number + 1


@contextmanager
def writing(folder: Path, origin: Origin) -> Iterator[Collection]:
    """Begin a collection in a folder, or continue the one that is there.

    Raises:
        SynthesisError: if it has another origin, is damaged, or is being written by another process.
        OSError: if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock, (folder / MANIFEST).open("ab+") as manifest:
        try:
            # Not flock, which child processes inherit, so that the lock would outlive a run that is killed.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise SynthesisError(f"{folder} is being written by another run") from error
        _agree(folder / _ORIGIN, origin, is_new=manifest.tell() == 0)
        manifest.seek(0)
        yield Collection(folder, manifest)


def _agree(path: Path, origin: Origin, *, is_new: bool) -> None:
    """Refuse to add clips of another origin."""
    fields = asdict(origin)
    if not path.exists():
        if not is_new:
            raise SynthesisError(f"{path.parent} holds another {MANIFEST}; make another folder")
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(fields) + "\n", encoding="utf-8")
        fresh.replace(path)
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        other = [name for name, value in fields.items() if there[name] != value]
    except (ValueError, KeyError, TypeError) as error:
        raise SynthesisError(f"{path} is damaged") from error
    if other:
        raise SynthesisError(f"{path.parent} was begun with other {' and '.join(other)}; make another folder")


def _line(number: int, name: str, source: str, reading: Reading, duration: float) -> bytes:
    fields = {
        "audio": name,
        "text": reading.sentence,
        "duration": duration,
        "source": source,
        "speaker": f"{source}/{reading.voice}",
        "split": "train",
        "number": number,
        "speed": round(reading.manner.speed, 3),
        "pitch": round(reading.manner.pitch, 3),
    }
    return (json.dumps(fields, ensure_ascii=False) + "\n").encode()
