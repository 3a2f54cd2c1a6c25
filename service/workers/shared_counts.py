"""Counts and figures that all processes read without asking each other, in memory that they map.

Each process writes its own row only, and a sum over all rows is the count of the service. Processes that add at the
same time may each exceed a limit by one request; gate 2, in the main process, is exact. The main process clears the row
of a worker that ended.
"""

import hashlib
import mmap
import os
import secrets
from typing import Literal

import numpy as np

from service.dispatch.admission import Counts, Outlook, RequestCounts

_KEY_BYTES = 16
# What gate 1 knows of the queue (`Outlook`), written by the main process; and the key of hashed names.
_SHARED = np.dtype([("outlook", "f8,f8,f8,?,?"), ("hash_key", "u1", _KEY_BYTES)], align=True)
_COUNT = np.dtype([("total", "i8"), ("by_hash", "i4", 1 << 16)])
_ROW = np.dtype([("requests", _COUNT), ("stored_bytes", _COUNT), ("connections", _COUNT)])


class SharedMemory:
    """The memory.

    Args:
        descriptor: its file, which has no name.
        processes: number of processes.
        row: row of this process; the main process has row 0.

    Attributes:
        row: row of this process.
        rows: the counts, (processes,).
    """

    def __init__(self, descriptor: int, processes: int, row: int) -> None:
        size = _SHARED.itemsize + processes * _ROW.itemsize
        if not row:
            os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        shared = np.frombuffer(memory, _SHARED, 1)
        self._outlook = shared["outlook"]
        self.row = row
        self.rows = np.frombuffer(memory, _ROW, processes, _SHARED.itemsize)
        if not row:
            shared["hash_key"] = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
        self._hash_key = shared["hash_key"].tobytes()

    @property
    def request_counts(self) -> RequestCounts:
        """Gate 1's counts of all processes."""
        return RequestCounts(SharedCounts(self, "requests"), SharedCounts(self, "stored_bytes"))

    def clear(self, row: int) -> None:
        """Clear the row of a process that ended."""
        self.rows[row] = 0

    def publish(self, outlook: Outlook) -> None:
        """Write what gate 1 needs to know of the queue."""
        self._outlook[0] = outlook

    def outlook(self) -> Outlook:
        """Return what gate 1 knows of the queue, as the main process published it."""
        return Outlook(*self._outlook[0].item())

    def hash_of(self, name: str) -> int:
        """Return the index of a client or a network in an array; a few share one by chance."""
        # With a key, so that no client can choose addresses that share one with another's.
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=2, key=self._hash_key).digest(), "little")


class SharedCounts(Counts):
    """The counts of all processes."""

    def __init__(self, shared: SharedMemory, kind: Literal["requests", "stored_bytes", "connections"]) -> None:
        super().__init__()
        self._shared = shared
        # As a memory view, because its sum takes a tenth of the time of a small array's.
        self._totals = shared.rows[kind]["total"].data
        self._by_hash = shared.rows[kind]["by_hash"]

    @property
    def total(self) -> int:
        """Those of all processes."""
        return sum(self._totals)

    def of(self, name: str) -> int:
        """Return the number of a client or a network."""
        return int(self._by_hash[:, self._shared.hash_of(name)].sum())

    def add(self, change: int, name: str | None = None) -> None:
        """Add to the number of this process, and of a client or network; a negative change subtracts."""
        self.own += change
        self._totals[self._shared.row] += change
        if name is not None:
            self._by_hash[self._shared.row, self._shared.hash_of(name)] += change
