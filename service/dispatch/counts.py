"""Counts of what is under way: in memory of this process, or in memory that all HTTP processes map.

Each process writes its own row only, and a sum over all rows is the count of the service. Processes that add at the
same time may each exceed a limit by one; gate 2, in the main process, is exact.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

KEY_BYTES = 16
COUNT = np.dtype([("total", "i8"), ("by_hash", "i4", 1 << 16)])


class Counts:
    """How many of something there are, in all and by client or network; a few of these share a number by chance.

    Args:
        rows: the count of each process, (processes,), of `COUNT`; None: there is only this one.
        row: the row of this process.
        hash_key: the key of hashed names, so that no client can choose addresses that share a number with another's.

    Attributes:
        own: those of this process.
    """

    def __init__(self, rows: npt.NDArray[Any] | None = None, row: int = 0, hash_key: bytes | None = None) -> None:
        rows = np.zeros(1, COUNT) if rows is None else rows
        self.own = 0
        self._row = row
        # As a memory view, because its sum takes a tenth of the time of a small array's.
        self._totals = rows["total"].data
        self._by_hash = rows["by_hash"]
        self._hash_key = hash_key or secrets.token_bytes(KEY_BYTES)

    @property
    def total(self) -> int:
        """Those of all processes."""
        return sum(self._totals)

    def of(self, name: str) -> int:
        """Return the number of a client or a network in all processes."""
        return int(self._by_hash[:, self._hash(name)].sum())

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
