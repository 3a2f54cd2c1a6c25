"""A decoded recording, up to hours long: a short one stays in memory, a long one lies in an unnamed file."""

import tempfile
import threading
from io import RawIOBase
from typing import Self

import numpy as np

from audio.samples import Samples

_SAMPLE_BYTES = 4


class StorageFullError(Exception):
    """The disk has no room for the file of a long recording."""


class Recording:
    """Mono samples at one rate, written once from beginning to end, and read in any order. Close it, or use a context.

    Samples are float32, as the model takes them. 16 bits would halve the file, but then a long recording would not hold
    the same samples as a short one.

    Args:
        rate: samples per second.
        seconds_in_memory: a longer recording goes to a file in the system's folder for such files (TMPDIR).
    """

    def __init__(self, rate: int, seconds_in_memory: float) -> None:
        self.rate = rate
        self._memory = bytearray()
        self._most_in_memory = int(seconds_in_memory * rate) * _SAMPLE_BYTES
        self._file: RawIOBase | None = None
        self._lock = threading.Lock()
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
        """Add the bytes of float32 samples at the end, before any are read.

        Raises:
            StorageFullError: if they cannot be stored.
        """
        if self._file is None and len(self._memory) + len(samples) <= self._most_in_memory:
            self._memory += samples
        else:
            self._write(samples)
        self._length += len(samples) // _SAMPLE_BYTES

    def read(self, start: int, stop: int) -> Samples:
        """Return the samples from ``start`` up to ``stop`` or the end; any thread may call this.

        A recording in memory is not copied; the samples stay valid after it is closed.
        """
        if self._file is None:
            return np.frombuffer(memoryview(self._memory).toreadonly(), np.float32)[start:stop]
        with self._lock:
            self._file.seek(start * _SAMPLE_BYTES)
            return np.frombuffer(self._file.read((stop - start) * _SAMPLE_BYTES), np.float32)

    def close(self) -> None:
        """Release its memory and its file."""
        self._memory = bytearray()
        if self._file is not None:
            self._file.close()

    def _write(self, samples: bytes | memoryview) -> None:
        try:
            if self._file is None:
                # Not buffered, so that a full disk is noticed here, not when the file is read or closed.
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed with the recording
                _write_all(self._file, memoryview(self._memory))
                self._memory = bytearray()
            _write_all(self._file, memoryview(samples))
        except OSError as error:
            raise StorageFullError(f"a recording cannot be stored: {error.strerror}") from error


def _write_all(file: RawIOBase, what: memoryview) -> None:
    while what:
        what = what[file.write(what) :]
