"""What gate 1 knows: counts of what is under way, and of the queue; with several HTTP processes in memory that all map.

Each process writes its own row only, and a sum over all rows is the count of the service. Processes that add at the
same time may each exceed a limit by one; gate 2, in the main process, is exact.
"""

import hashlib
import mmap
import os
import secrets
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

_KEY_BYTES = 16
_COUNT = np.dtype([("total", "i8"), ("by_hash", "i4", 1 << 16)])
# What gate 1 knows of the queue (`Outlook`), written by the main process; and the key of hashed names.
_SHARED = np.dtype([("outlook", "f8,f8,f8,?,?"), ("hash_key", "u1", _KEY_BYTES)], align=True)
_ROW = np.dtype([("requests", _COUNT), ("stored_bytes", _COUNT), ("connections", _COUNT)])


class Counts:
    """How many of something there are, in all and by client or network; a few of these share a number by chance.

    Args:
        rows: the count of each process, (processes,), of `_COUNT`; None: there is only this one.
        hash_key: the key of hashed names, so that no client can choose addresses that share a number with another's.
    """

    def __init__(self, rows: npt.NDArray[Any] | None = None, row: int = 0, hash_key: bytes | None = None) -> None:
        rows = np.zeros(1, _COUNT) if rows is None else rows
        self.own = 0  # those of this process
        self._row = row
        # As a memory view, because its sum takes a tenth of the time of a small array's.
        self._totals = rows["total"].data
        self._by_hash = rows["by_hash"]
        self._hash_key = hash_key or secrets.token_bytes(_KEY_BYTES)

    @property
    def total(self) -> int:
        """Those of all processes."""
        return sum(self._totals)

    def of(self, name: str) -> int:
        """Return the number of a client or a network in all processes."""
        return sum(self._by_hash[:, self._hash(name)].tolist())

    def add(self, change: int, name: str | None = None) -> None:
        """Add to the number of this process, and of a client or network; a negative change subtracts."""
        self.own += change
        self._totals[self._row] += change
        if name is not None:
            self._by_hash[self._row, self._hash(name)] += change

    def _hash(self, name: str) -> int:
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=2, key=self._hash_key).digest(), "little")


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Counts of what passed gate 1 and is not finished: requests, and bytes of uploads being received or decoded."""

    requests: Counts = field(default_factory=Counts)
    stored_bytes: Counts = field(default_factory=Counts)


class Outlook(NamedTuple):
    """What gate 1 knows of the queue."""

    # Seconds until a recording accepted now would have its turn, after one turn of each recording before it.
    predicted_wait: float
    waiting_seconds: float  # the decoded audio without a transcript, except that of jobs
    loading_seconds: float  # how long a model takes to load, as far as known
    is_loaded: bool  # whether an engine has been ready
    is_draining: bool  # whether new requests are refused, because the service shuts down


class SharedMemory:
    """What all processes read without asking each other, in memory that they map.

    Args:
        row: row of this process; the main process has row 0, and clears that of a process that ended.
    """

    def __init__(self, descriptor: int, processes: int, row: int) -> None:
        size = _SHARED.itemsize + processes * _ROW.itemsize
        if not row:
            os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        shared = np.frombuffer(memory, _SHARED, 1)
        self._outlook = shared["outlook"]
        self._row = row
        self.rows = np.frombuffer(memory, _ROW, processes, _SHARED.itemsize)  # the counts, (processes,)
        if not row:
            shared["hash_key"] = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
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
