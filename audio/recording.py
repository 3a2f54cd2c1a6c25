"""A decoded recording that may be hours long: what is short stays in memory, what is long lies in an unnamed file."""

import tempfile
import threading
from types import TracebackType
from typing import Self

import numpy as np

from audio.resample import Samples

_SAMPLE_BYTES = 4


class StorageFullError(Exception):
    """There is no room for the file of a long recording."""


class Recording:
    """Mono samples at one rate, written once from beginning to end, and read in any order. Close it, or use a context.

    Samples are kept as float32, as the model takes them: the file of a recording is twice as large as it had to be,
    but a long recording holds the same samples as a short one.

    Args:
        rate: samples per second.
        seconds_in_memory: a longer recording goes to a file in the system's folder for such files (TMPDIR).
    """

    def __init__(self, rate: int, seconds_in_memory: float) -> None:
        self.rate = rate
        size = int(seconds_in_memory * rate) * _SAMPLE_BYTES
        self._file = tempfile.SpooledTemporaryFile(max_size=size)  # noqa: SIM115  # closed with the recording
        self._lock = threading.Lock()
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._length

    @property
    def seconds(self) -> float:
        """Its length."""
        return self._length / self.rate

    def append(self, samples: bytes) -> None:
        """Add the bytes of float32 samples at the end.

        Raises:
            StorageFullError: if they cannot be stored.
        """
        try:
            self._file.write(samples)
        except OSError as error:
            raise StorageFullError(f"a recording cannot be stored: {error.strerror}") from error
        self._length += len(samples) // _SAMPLE_BYTES

    def read(self, start: int, stop: int) -> Samples:
        """Return the samples from ``start`` up to ``stop``, as far as there are any; any thread may."""
        with self._lock:
            self._file.seek(start * _SAMPLE_BYTES)
            return np.frombuffer(self._file.read((stop - start) * _SAMPLE_BYTES), np.float32)

    def close(self) -> None:
        """Give its memory and its file back."""
        self._file.close()
