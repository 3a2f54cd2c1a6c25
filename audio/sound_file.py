"""Read a sound file forward in blocks. The only file that knows libsndfile."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import soundfile

from audio.descriptor import descriptor_of
from audio.errors import InvalidAudioError
from audio.limits import AudioLimits
from audio.raw import RawForm
from audio.resample import Samples
from audio.source import Mix, falls_short

# libsndfile's frame count of a stream whose header leaves the length open.
_OPEN_LENGTH = 2**63 - 1
# 4 s at 16 kHz. Around each block threads hand on the interpreter, which costs more than to decode a second of WAV;
# larger ones cost more in fresh pages than they save.
_VALUES_OF_BLOCK = 65_536


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no type information
    """A sound file that is never sought in.

    soundfile seeks after every read of a file that it can seek in, which costs time and fails at the end of a FLAC
    stream whose header leaves the length open.
    """

    def seekable(self) -> bool:
        return False


class SoundFileSource:
    """A file that libsndfile reads; see ``audio.source.Source``."""

    def __init__(self, sound: soundfile.SoundFile, limits: AudioLimits) -> None:
        self._sound = sound
        self._limits = limits
        self.channels: int = sound.channels
        self.rate: int = sound.samplerate
        self.frames = 0
        self.broken = False
        limits.check_form(self.channels, self.rate)

    @classmethod
    @contextmanager
    def open(cls, file: BinaryIO, limits: AudioLimits, raw: RawForm | None = None) -> Iterator["SoundFileSource"]:
        """Open ``file``; ``raw`` says that it has no header, and what it would say.

        Raises:
            InvalidAudioError: if libsndfile cannot read it.
            UnsupportedFormatError: if its channels or its sample rate are outside the limits.
        """
        if raw is not None:
            limits.check_form(raw.channels, raw.rate)
        # libsndfile reads a descriptor by itself. Of a Python file it would ask 8 kB at a time, and wait for the
        # interpreter each time, which is long beside a busy event loop (docs/performance.md).
        with descriptor_of(file) as descriptor:
            try:
                sound = _ForwardSoundFile(descriptor, closefd=False, **_arguments(raw))
            except soundfile.LibsndfileError as error:
                raise InvalidAudioError(f"the file cannot be decoded: {error.error_string}") from error
            with sound:
                yield cls(sound, limits)

    @property
    def seconds(self) -> float:
        """Length of what was decoded so far."""
        return self.frames / self.rate

    @property
    def ended_early(self) -> bool:
        """Whether the file is known to have ended before it should; FLAC may leave its length open."""
        claimed: int = self._sound.frames
        return self.broken or (claimed != _OPEN_LENGTH and falls_short(claimed / self.rate, self.seconds))

    def blocks(self, mix: Mix) -> Iterator[Samples]:
        """Yield what ``mix`` makes of the channels, a few seconds at a time, until the file ends or breaks.

        Raises:
            InvalidAudioError: if samples are not finite numbers.
            AudioTooLongError: as soon as more than the limit is decoded.
        """
        while len(block := self._read()):
            self.frames += len(block)
            self._limits.check_longest(self.seconds)
            yield mix(block)

    def _read(self) -> Samples:
        """Return the next frames [frames, channels]; when decoding fails, those before the damage."""
        if self.broken:
            return np.empty((0, self.channels), dtype=np.float32)
        block: Samples = np.full((_VALUES_OF_BLOCK // self.channels, self.channels), np.nan, dtype=np.float32)
        try:
            read: Samples = self._sound.read(out=block)
        except soundfile.LibsndfileError:
            self.broken = True
            # libsndfile has written what it decoded, but soundfile does not say how much that was.
            missing = np.isnan(block).any(axis=1)
            return block[: missing.argmax()] if missing.any() else block
        return read


def _arguments(raw: RawForm | None) -> dict[str, str | int]:
    if raw is None:
        return {}
    return {
        "format": "RAW",
        "subtype": "PCM_16",
        "endian": "BIG" if raw.big_endian else "LITTLE",
        "channels": raw.channels,
        "samplerate": raw.rate,
    }
