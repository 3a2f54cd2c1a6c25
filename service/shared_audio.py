"""Memory that two processes map: one writes samples, and the other reads them there, so audio is never sent.

Workers write for the dispatcher, and the dispatcher for engines. The file has no name, so the kernel frees it with the
last process that uses it, however that process ends. It grows and cannot shrink, because reading beyond its end would
kill a process; the memory of free space goes back instead.
"""

import bisect
import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from audio.descriptor import unnamed_file
from audio.samples import Samples

_SAMPLE_BYTES = 4
_GRAIN = mmap.PAGESIZE // _SAMPLE_BYTES
_LEAST_GROWTH = 1 << 22  # samples: 16 MiB, so that it grows seldom


def shared_file() -> int:
    """Open an empty file without a name, which neither process can shrink where the system can hold it to that."""
    if not hasattr(os, "memfd_create"):
        return unnamed_file()
    descriptor = os.memfd_create("steno", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor


class Item(msgspec.Struct, frozen=True, array_like=True):
    """The place of an utterance in the memory, in samples (float32)."""

    offset: Annotated[int, msgspec.Meta(ge=0)]
    samples: Annotated[int, msgspec.Meta(ge=0)]


class Arena:
    """The side that writes. What is put together lies in the first free space that is long enough; the file grows."""

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

    def reserve(self, lengths: Sequence[int]) -> list[Item]:
        """Return a place for each of some utterances, one behind the other, until `free`.

        Raises:
            OSError: if it cannot grow, or is closed.
        """
        size = -(-max(1, sum(lengths)) // _GRAIN) * _GRAIN
        index = next((at for at, (start, stop) in enumerate(self._holes) if stop - start >= size), -1)
        if index < 0:
            self._grow(size)
        start, stop = self._holes[index]
        if stop - start == size:
            del self._holes[index]
        else:
            self._holes[index] = (start + size, stop)
        self._used[start] = size
        items = []
        for length in lengths:
            items.append(Item(start, length))
            start += length
        return items

    def write(self, items: Sequence[Item], utterances: Sequence[Samples]) -> None:
        """Copy utterances to their places; any thread may, while others are reserved and freed."""
        memory = self._memory
        for item, samples in zip(items, utterances, strict=True):
            memory[item.offset : item.offset + item.samples] = samples

    def put(self, samples: Samples) -> Item:
        """Reserve a place for an utterance, and copy it there."""
        items = self.reserve([len(samples)])
        self.write(items, [samples])
        return items[0]

    def free(self, start: int) -> None:
        """Free what was reserved together, by the offset of the first."""
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

    def close(self) -> None:
        """Close the descriptor, and let the memory go, which has one of its own; nothing can be reserved any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._map, self._memory = -1, None, np.empty(0, np.float32)
        self._holes.clear()

    def _grow(self, size: int) -> None:
        end = len(self._memory)
        new = end + max(size, _LEAST_GROWTH, end // 4 // _GRAIN * _GRAIN)
        os.ftruncate(self._descriptor, new * _SAMPLE_BYTES)
        self._map = mmap.mmap(self._descriptor, new * _SAMPLE_BYTES)
        self._memory = np.frombuffer(self._map, np.float32)
        if self._holes and self._holes[-1][1] == end:
            end = self._holes.pop()[0]
        self._holes.append((end, new))


class ArenaView:
    """The side that reads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory: Samples = np.empty(0, np.float32)

    def read(self, item: Item) -> Samples:
        """Return an utterance's samples without copying them, read-only; valid until the other side frees them.

        Raises:
            ValueError: if the memory does not have its place.
        """
        stop = item.offset + item.samples
        if stop > len(self._memory):  # the file has grown
            if stop * _SAMPLE_BYTES > os.fstat(self._descriptor).st_size:
                raise ValueError(f"samples to {stop} are not in the memory")
            self._memory = np.frombuffer(mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ), np.float32)
        return self._memory[item.offset : stop]
