"""Read a sound file forward in blocks of mono samples. The only file that knows libsndfile."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import soundfile

from audio.errors import AudioTooLongError, InvalidAudioError, UnsupportedFormatError
from audio.limits import AudioLimits
from audio.resample import Samples

# Full scale of 32-bit integers that were stored as floats; what is beyond it, or not a number, is no sound.
_LOUDEST = 2.0**31
# libsndfile's frame count of a stream whose header leaves the length open.
_OPEN_LENGTH = 2**63 - 1


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no type information
    """A sound file that is never sought in.

    soundfile seeks after every read of a file that it can seek in, which costs time and fails at the end of a FLAC
    stream whose header leaves the length open.
    """

    def seekable(self) -> bool:
        return False


class Source:
    """An open sound file.

    Attributes:
        frames: frames decoded so far, one sample of each channel each.
        broken: whether decoding ended with an error.
    """

    def __init__(self, sound: soundfile.SoundFile, limits: AudioLimits) -> None:
        self._sound = sound
        self._limits = limits
        self.channels: int = sound.channels
        self.rate: int = sound.samplerate
        self.frames = 0
        self.broken = False
        self._check_header()

    @classmethod
    @contextmanager
    def open(cls, file: BinaryIO, limits: AudioLimits) -> Iterator["Source"]:
        """Open ``file``, which stands at its start.

        Raises:
            InvalidAudioError: if libsndfile cannot read it.
            UnsupportedFormatError: if its channels or its sample rate are outside the limits.
        """
        try:
            sound = _ForwardSoundFile(file)
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
        """Whether the file is known to have ended before it should.

        The header of an MP3 may only estimate the length, which is no more than this off; FLAC may leave it open.
        """
        claimed = self._sound.frames
        tolerance = max(0.1 * self.rate, 0.01 * self.frames)
        return self.broken or (claimed != _OPEN_LENGTH and claimed - self.frames > tolerance)

    def blocks(self) -> Iterator[Samples]:
        """Yield the mean of the channels, at most a second at a time, until the file ends or breaks.

        Raises:
            InvalidAudioError: if samples are not finite numbers.
            AudioTooLongError: as soon as more than the limit is decoded.
        """
        while len(block := self._read()):
            self.frames += len(block)
            if self.seconds > self._limits.max_seconds:
                raise AudioTooLongError(f"the audio is longer than {self._limits.max_seconds:g} s, the most accepted")
            if not np.abs(block).max() <= _LOUDEST:
                raise InvalidAudioError("the audio holds samples that are infinite or not numbers")
            yield block[:, 0] if self.channels == 1 else block.mean(axis=1)

    def _read(self) -> Samples:
        """Return the next frames [frames, channels]; when decoding fails, those before the damage."""
        if self.broken:
            return np.empty((0, self.channels), dtype=np.float32)
        block: Samples = np.full((self.rate, self.channels), np.nan, dtype=np.float32)
        try:
            read: Samples = self._sound.read(out=block)
        except soundfile.LibsndfileError:
            self.broken = True
            # libsndfile has written what it decoded, but soundfile does not say how much that was.
            missing = np.isnan(block).any(axis=1)
            return block[: missing.argmax()] if missing.any() else block
        return read

    def _check_header(self) -> None:
        limits = self._limits
        if self.channels > limits.max_channels:
            raise UnsupportedFormatError(
                f"the audio has {self.channels} channels; at most {limits.max_channels} are accepted"
            )
        if not limits.min_rate <= self.rate <= limits.max_rate:
            raise UnsupportedFormatError(
                f"the sample rate is {self.rate} Hz; from {limits.min_rate} to {limits.max_rate} Hz are accepted"
            )
