"""Read a sound file with libsndfile, forward in blocks. Only this file uses libsndfile."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import soundfile

from audio.descriptor import descriptor_of
from audio.errors import InvalidAudioError
from audio.limits import AudioLimits, check_form
from audio.samples import Samples
from audio.source import Mix, falls_short

# libsndfile's frame count of a stream whose header does not give the length.
_OPEN_LENGTH = 2**63 - 1
# The most samples of a FLAC frame, and its least bytes (RFC 9639, 9.1 to 9.3).
_FLAC_FRAME = 65_535
_FLAC_FRAME_BYTES = 11
_READ_AHEAD = 1 << 14  # twice what libFLAC buffers, in bytes
_MOST_UNREAD = 1 << 16  # bytes behind the audio, of tags for example
# 16 s at 16 kHz, so most clips are one block.
_VALUES_OF_BLOCK = 1 << 18


Room = Callable[[int], Samples]  # from a number of samples to memory for them, float32 [samples]


def new_room(samples: int) -> Samples:
    """Return new memory for ``samples``."""
    return np.empty(samples, np.float32)


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no type information
    """A sound file that is only read, and in which soundfile never seeks.

    It would seek after every read, which costs time and fails at the end of a FLAC stream whose header does not give
    the length.
    """

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing, where soundfile would have the system write the file to the disk before it is closed."""


class SoundFileSource:
    """A file that libsndfile reads; see ``audio.source.Source``."""

    track = tracks = 1

    def __init__(self, sound: soundfile.SoundFile, descriptor: int, limits: AudioLimits, room: Room) -> None:
        self._sound = sound
        self._descriptor = descriptor
        self._room = room
        self._limits = limits
        self.channels: int = sound.channels
        self.rate: int = sound.samplerate
        self.frames = 0
        self.broken = False
        check_form(self.channels, self.rate)

    @classmethod
    @contextmanager
    def open(cls, file: BinaryIO, limits: AudioLimits, room: Room = new_room) -> Iterator["SoundFileSource"]:
        """Open ``file``; ``room`` gives memory for samples.

        Raises:
            AudioError: if libsndfile cannot read it, or it says that it is outside the limits.
        """
        # libsndfile reads a descriptor without Python; a Python file it would read 8 kB at a time.
        with descriptor_of(file) as descriptor:
            try:
                sound = _ForwardSoundFile(descriptor, closefd=False)
            except soundfile.LibsndfileError as error:
                raise InvalidAudioError(f"the file cannot be decoded: {error.error_string}") from error
            with sound:
                source = cls(sound, descriptor, limits, room)
                is_known = sound.format == "FLAC" and sound.frames != _OPEN_LENGTH
                if is_known and sound.frames // _FLAC_FRAME * _FLAC_FRAME_BYTES <= os.fstat(descriptor).st_size:
                    limits.check_decoded(sound.frames, source.rate, source.channels)
                yield source

    @property
    def seconds(self) -> float:
        """Length of what was decoded so far."""
        return self.frames / self.rate

    @property
    def place(self) -> int:
        """A byte at or a little before the end of what was decoded."""
        return max(0, os.lseek(self._descriptor, 0, os.SEEK_CUR) - _READ_AHEAD)

    @property
    def leaves_much(self) -> bool:
        """Whether much of a FLAC or MP3 is unread at its end, as where its header gives too short a length.

        Behind WAV and Vorbis something else may follow.
        """
        unread = os.fstat(self._descriptor).st_size - os.lseek(self._descriptor, 0, os.SEEK_CUR)
        return self._sound.format in {"FLAC", "MP3"} and unread > _MOST_UNREAD

    @property
    def ended_early(self) -> bool:
        """Whether the file is known to have ended before it should. A FLAC header may not give the length."""
        claimed: int = self._sound.frames
        return self.broken or (claimed != _OPEN_LENGTH and falls_short(claimed / self.rate, self.seconds))

    def blocks(self, mix: Mix) -> Iterator[Samples]:
        """Yield blocks of at most ``_VALUES_OF_BLOCK`` values, as ``Source.blocks`` does."""
        # Of another FLAC behind this one, libFLAC would read the header, and call it damage.
        most = self._sound.frames if self._sound.format == "FLAC" else _OPEN_LENGTH
        is_at_end = False
        while not is_at_end:
            wanted = _VALUES_OF_BLOCK // self.channels
            if (left := self._sound.frames - self.frames) > 0:
                # One more, to find the end of the file without another read.
                wanted = min(wanted, left + 1, most - self.frames)
            block = self._read(wanted)
            is_at_end = self.broken or len(block) < wanted or self.frames + len(block) == most
            if len(block):
                self.frames += len(block)
                self._limits.check_decoded(self.frames, self.rate, self.channels)
                yield mix(block)

    def _read(self, frames: int) -> Samples:
        """Return the next frames [frames, channels]: fewer at the end, or before damage."""
        block = self._room(frames * self.channels).reshape(frames, self.channels)
        try:
            read: Samples = self._sound.read(out=block)
        except soundfile.LibsndfileError:
            self.broken = True
            # libsndfile has written what it decoded, but soundfile does not say how many frames.
            return block[: max(0, self._sound.tell() - self.frames)]
        return read
