"""A decoded recording, up to hours long: a short one stays in memory, a long one lies in an unnamed file."""

import os
import tempfile
from typing import TYPE_CHECKING, Self

import numpy as np

from audio.descriptor import write_all
from audio.samples import Samples

if TYPE_CHECKING:
    from io import RawIOBase

_SAMPLE_BYTES = 4


class StorageFullError(Exception):
    """The disk has no room for the file of a long recording."""


class Recording:
    """Mono samples at one rate, written from beginning to end, and read in any order. Close it, or use it as a context.

    They are float32, as the model takes them: with 16 bits, a long recording would not hold the samples of a short one.
    A recording that is longer than ``seconds_in_memory`` goes to a file in the system's folder for such (TMPDIR).
    """

    def __init__(self, rate: int, seconds_in_memory: float) -> None:
        self.rate = rate
        self._memory: bytes | bytearray | memoryview = b""
        self._most_in_memory = int(seconds_in_memory * rate) * _SAMPLE_BYTES
        self._file: RawIOBase | None = None
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._length

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return self._length / self.rate

    def append(self, samples: bytes | memoryview) -> None:
        """Add the bytes of float32 samples at the end; not while it is read.

        They are not copied if they are the first, so they must not change.

        Raises:
            StorageFullError: if they cannot be stored.
        """
        if self._file is None and len(self._memory) + len(samples) <= self._most_in_memory:
            if not self._memory:
                self._memory = samples
            elif isinstance(self._memory, bytearray):
                self._memory += samples
            else:
                self._memory = bytearray().join((self._memory, samples))
        else:
            self._write(samples)
        self._length += len(samples) // _SAMPLE_BYTES

    @property
    def descriptor(self) -> int | None:
        """Descriptor of its file, in which its samples lie from the start; None if it is in memory."""
        return None if self._file is None else self._file.fileno()

    def read(self, start: int, stop: int) -> Samples:
        """Return the samples from ``start`` up to ``stop`` or the end; any thread may call this.

        A recording in memory is not copied; the samples stay valid after it is closed.
        """
        if self._file is None:
            return np.frombuffer(memoryview(self._memory).toreadonly(), np.float32)[start:stop]
        return read_samples(self._file.fileno(), start, min(stop, self._length))

    def close(self) -> None:
        """Release its memory and its file."""
        self._memory = b""
        if self._file is not None:
            self._file.close()

    def _write(self, samples: bytes | memoryview) -> None:
        try:
            if self._file is None:
                # Not buffered, so that a full disk is noticed here, not when the file is read or closed.
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed with the recording
                write_all(self._file.fileno(), memoryview(self._memory), 0)
                self._memory = b""
            write_all(self._file.fileno(), memoryview(samples), self._length * _SAMPLE_BYTES)
        except OSError as error:
            raise StorageFullError(f"a recording cannot be stored: {error.strerror}") from error


def read_samples(descriptor: int, start: int, stop: int) -> Samples:
    """Return the samples from ``start`` up to ``stop`` or the end of a recording's file."""
    blocks, at, end = [], start * _SAMPLE_BYTES, stop * _SAMPLE_BYTES
    while at < end and (block := os.pread(descriptor, end - at, at)):
        blocks.append(block)
        at += len(block)
    return np.frombuffer(blocks[0] if len(blocks) == 1 else b"".join(blocks), np.float32)
