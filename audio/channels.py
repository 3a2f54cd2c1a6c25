"""A decoded recording whose channels are kept apart, such as the two sides of a call."""

from collections.abc import Iterator
from typing import Self

import numpy as np

from audio.recording import Recording
from audio.source import SILENCE


class Channels:
    """The channels of a recording, numbered from 0; see ``Recording``. Close it, or use it as a context.

    Args:
        are_apart: whether channels are not mixed, so that some may be silent. To find that out takes time.
    """

    def __init__(self, rate: int, seconds_in_memory: float, *, are_apart: bool) -> None:
        self.rate = rate
        self._are_apart = are_apart
        self._seconds_in_memory = seconds_in_memory
        self._recordings: list[Recording] = []
        self._loudest: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Recording]:
        return iter(self._recordings)

    @property
    def seconds(self) -> float:
        """Length of the recording so far."""
        return max((one.seconds for one in self._recordings), default=0.0)

    def append(self, samples: bytes | memoryview, channel: int) -> None:
        """Add the bytes of float32 samples at the end of a channel. Channels must begin in the order of their numbers.

        Raises:
            StorageFullError: if they cannot be stored.
        """
        if channel == len(self._recordings):
            self._recordings.append(Recording(self.rate, self._seconds_in_memory))
            self._loudest.append(0.0)
        self._recordings[channel].append(samples)
        if self._are_apart and samples:
            block = np.frombuffer(samples, np.float32)
            self._loudest[channel] = max(self._loudest[channel], float(block.max()), -float(block.min()))

    def is_silent(self, channel: int) -> bool:
        """Return whether all samples of a channel, of several that are apart, are silence so far."""
        assert self._are_apart
        return self._loudest[channel] <= SILENCE

    def close(self) -> None:
        """Release memory and files."""
        for recording in self._recordings:
            recording.close()
