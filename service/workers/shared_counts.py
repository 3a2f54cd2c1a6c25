"""Counts, and figures about the queue, that all processes read without asking each other, in memory that they map."""

import mmap
import os
import secrets
from typing import Literal

import numpy as np

from service.dispatch.admission import Outlook
from service.dispatch.counts import COUNT, KEY_BYTES, Counts, RequestCounts

# What gate 1 knows of the queue (`Outlook`), written by the main process; and the key of hashed names.
_SHARED = np.dtype([("outlook", "f8,f8,f8,?,?"), ("hash_key", "u1", KEY_BYTES)], align=True)
_ROW = np.dtype([("requests", COUNT), ("stored_bytes", COUNT), ("connections", COUNT)])


class SharedMemory:
    """The memory.

    Args:
        descriptor: its file, which has no name.
        processes: number of processes.
        row: row of this process; the main process has row 0, and clears that of a process that ended.

    Attributes:
        rows: the counts, (processes,).
    """

    def __init__(self, descriptor: int, processes: int, row: int) -> None:
        size = _SHARED.itemsize + processes * _ROW.itemsize
        if not row:
            os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        shared = np.frombuffer(memory, _SHARED, 1)
        self._outlook = shared["outlook"]
        self._row = row
        self.rows = np.frombuffer(memory, _ROW, processes, _SHARED.itemsize)
        if not row:
            shared["hash_key"] = np.frombuffer(secrets.token_bytes(KEY_BYTES), np.uint8)
        self._hash_key = shared["hash_key"].tobytes()

    def counts(self, kind: Literal["requests", "stored_bytes", "connections"]) -> Counts:
        """Return the counts of all processes."""
        return Counts(self.rows[kind], self._row, self._hash_key)

    @property
    def request_counts(self) -> RequestCounts:
        """Gate 1's counts of all processes."""
        return RequestCounts(self.counts("requests"), self.counts("stored_bytes"))

    def publish(self, outlook: Outlook) -> None:
        """Write what gate 1 needs to know of the queue."""
        self._outlook[0] = outlook

    def outlook(self) -> Outlook:
        """Return what gate 1 knows of the queue, as the main process published it."""
        return Outlook(*self._outlook[0].item())
