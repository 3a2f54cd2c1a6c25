"""A recording of one utterance: its fields in a manifest, and reading its samples."""

import io
import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import soundfile

from audio.decode import decode_into
from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.reader import suits_libsndfile
from audio.samples import Samples
from audio.sniff import container_of
from models import Prompt
from training.errors import ManifestError

# The length in a manifest and the decoded one may differ by this: codecs pad, and writers round.
_TOLERATED_SECONDS = 0.5
_FLOAT_BYTES = 4


class ByteRange(NamedTuple):
    """The bytes of a file inside another one, such as a tar."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of one utterance."""

    audio: Path  # the file that has it, alone or among others
    name: str  # its name in the manifest; the same in copies of the manifest
    seconds: float  # its length in the manifest; 0 if the manifest has none that can be used
    text: str | None  # its transcript, or None
    source: str  # its collection
    speaker: str  # its speaker; the source if that is not known
    # The prompt of an attention decoder: the spoken language, and how the text is written.
    prompt: Prompt = field(default_factory=Prompt)
    start: float | None = None  # second of the recording at which the clip begins; None if it is the whole recording
    byte_range: ByteRange | None = None  # the position of the recording in ``audio``; None if it is all of it
    where: str = field(default="", compare=False)  # what lists it, such as a line of a manifest, for messages

    def __str__(self) -> str:
        """Return its file, and the line that lists it."""
        inside = f" ({self.name})" if self.byte_range else ""
        return f"{self.audio}{inside}" + (f" ({self.where})" if self.where else "")

    def open(self) -> BinaryIO:
        """Open its recording.

        Raises:
            OSError: if it cannot be read.
        """
        if self.byte_range is None:
            return self.audio.open("rb")
        with self.audio.open("rb") as file:
            file.seek(self.byte_range.offset)
            return io.BytesIO(file.read(self.byte_range.size))

    def samples(self, rate: int) -> Samples:
        """Decode it to mono samples at ``rate``.

        Raises:
            ManifestError: if it does not decode, or is not as long as the manifest says.
        """
        if not self.seconds:
            raise ManifestError(f"{self} has no duration above 0 in its manifest")
        try:
            with self.open() as file:
                samples = _whole(file, rate, self.seconds) if self.start is None else self._excerpt(file, rate)
        except AudioError as error:
            raise ManifestError(f"{self}: {error}") from error
        except OSError as error:
            raise ManifestError(f"{self}: {error.strerror or error}") from error
        seconds = len(samples) / rate
        if not len(samples) or seconds < self.seconds - _TOLERATED_SECONDS:
            raise ManifestError(f"{self} lasts {seconds:.2f} s, and not {self.seconds:.2f} s")
        return samples

    def _excerpt(self, file: BinaryIO, rate: int) -> Samples:
        """Return the ``seconds`` from ``start`` on, and decode nothing behind them."""
        assert self.start is not None, "the whole is read at once"
        start = self.start
        if suits_libsndfile(file, container_of(file)):  # libsndfile finds the place by itself
            try:
                file, start = _cut_out(file, start, self.seconds), 0.0
            except (RuntimeError, ValueError) as error:
                raise ManifestError(f"{self}: {error}") from error
        first, last = (round(second * rate) * _FLOAT_BYTES for second in (start, start + self.seconds))
        held = bytearray()
        passed = 0

        def take(block: bytes | memoryview, _: int) -> None:
            nonlocal passed
            held.extend(block[max(0, first - passed) : max(0, last - passed)])
            passed += len(block)
            if passed >= last:
                raise _EnoughError

        with suppress(_EnoughError):
            decode_into(take, file, Wanted(rate, AudioLimits(max_seconds=math.inf, min_seconds=0.0)))
        return np.frombuffer(held, dtype=np.float32)


class _EnoughError(Exception):
    """Enough of the recording is decoded."""


def _whole(file: BinaryIO, rate: int, seconds: float) -> Samples:
    held = bytearray()
    limits = AudioLimits(max_seconds=seconds + _TOLERATED_SECONDS)
    decode_into(lambda block, _: held.extend(block), file, Wanted(rate, limits))
    return np.frombuffer(held, dtype=np.float32)


def _cut_out(file: BinaryIO, start: float, seconds: float) -> BinaryIO:
    """Return a stretch of a recording as a file of its own."""
    file.seek(0)
    cut = io.BytesIO()
    with soundfile.SoundFile(file) as sound:
        sound.seek(min(round(start * sound.samplerate), sound.frames))
        frames = sound.read(round(seconds * sound.samplerate), dtype="float32", always_2d=True)
        soundfile.write(cut, frames, sound.samplerate, subtype="FLOAT", format="WAV")
    cut.seek(0)
    return cut
