"""Memory that a worker and the main process both map: a worker writes samples, and the dispatcher's staging reads them.

Its file has no name, so the kernel frees it with the last process that uses it, however that process ends. It grows
and never shrinks, because reading beyond its end would kill a process; the memory of free space goes back instead.
"""

import bisect
import mmap
import os

import numpy as np

from audio.samples import Samples

_SAMPLE_BYTES = 4
_GRAIN = mmap.PAGESIZE // _SAMPLE_BYTES
_LEAST_GROWTH = 1 << 22  # samples: 16 MiB, so that it grows seldom


class Arena:
    """The worker's side: puts samples into the first free space that is long enough.

    Args:
        descriptor: the unnamed file; it is grown to fit.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None
        self._memory: Samples = np.empty(0, np.float32)
        # Free spaces: start and stop of each, in samples, ascending; used space separates them.
        self._holes: list[tuple[int, int]] = []
        self._used: dict[int, int] = {}  # lengths by start

    @property
    def is_empty(self) -> bool:
        """Whether it holds no samples."""
        return not self._used

    def put(self, samples: Samples) -> int:
        """Copy samples, and return their place, in samples from the start.

        Raises:
            OSError: if it cannot grow.
        """
        size = -(-max(1, len(samples)) // _GRAIN) * _GRAIN
        index = next((at for at, (start, stop) in enumerate(self._holes) if stop - start >= size), -1)
        if index < 0:
            self._grow(size)
        start, stop = self._holes[index]
        if stop - start == size:
            del self._holes[index]
        else:
            self._holes[index] = (start + size, stop)
        self._used[start] = size
        self._memory[start : start + len(samples)] = samples
        return start

    def free(self, start: int) -> None:
        """Free the space of samples."""
        stop = start + self._used.pop(start)
        index = bisect.bisect(self._holes, (start, stop))
        if index < len(self._holes) and self._holes[index][0] == stop:
            stop = self._holes.pop(index)[1]
        if index and self._holes[index - 1][1] == start:
            index -= 1
            start = self._holes.pop(index)[0]
        self._holes.insert(index, (start, stop))

    def return_free_memory(self) -> None:
        """Return the pages of free space to the system."""
        if self._map is not None and hasattr(mmap, "MADV_REMOVE"):
            for start, stop in self._holes:
                self._map.madvise(mmap.MADV_REMOVE, start * _SAMPLE_BYTES, (stop - start) * _SAMPLE_BYTES)

    def _grow(self, size: int) -> None:
        end = len(self._memory)
        new = end + max(size, _LEAST_GROWTH, end // 4 // _GRAIN * _GRAIN)
        os.ftruncate(self._descriptor, new * _SAMPLE_BYTES)
        self._map = mmap.mmap(self._descriptor, 0)
        self._memory = np.frombuffer(self._map, np.float32)
        if self._holes and self._holes[-1][1] == end:
            end = self._holes.pop()[0]
        self._holes.append((end, new))
