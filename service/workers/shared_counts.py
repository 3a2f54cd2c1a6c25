"""Counts and figures that all processes read without asking each other, in memory that they map.

Each process writes its own row only, and a sum over all rows is the count of the service. Processes that add at the
same time may each exceed a limit by one request; gate 2, in the main process, is exact. The main process clears the row
of a worker that ended.
"""

import hashlib
import mmap
import os
import secrets

import numpy as np

from service.dispatch.admission import Outlook, RequestCounts
from service.http.wire.connections import ConnectionCounts

_KEY_BYTES = 16
# What gate 1 knows of the queue (`Outlook`), written by the main process; and the key of hashed networks.
_SHARED = np.dtype([("outlook", "f8,f8,f8,?,?"), ("hash_key", "u1", _KEY_BYTES)], align=True)
_HASHES = 1 << 16
_ROW = np.dtype(
    [
        ("requests", "i8"),
        ("stored_bytes", "i8"),
        ("connections", "i8"),
        ("by_network", "i4", _HASHES),
        ("by_client", "i4", _HASHES),
    ]
)


class SharedCounts:
    """The memory.

    Args:
        descriptor: its file, which has no name.
        processes: number of processes.
        row: row of this process; the main process has row 0.

    Attributes:
        row: row of this process.
        requests: admitted by each process, (processes,).
        stored_bytes: of uploads, (processes,).
        connections: that are open, (processes,).
        by_network: open connections by the hash of their network, (processes, hashes).
        by_client: admitted requests by the hash of their client, (processes, hashes).
    """

    def __init__(self, descriptor: int, processes: int, row: int) -> None:
        size = _SHARED.itemsize + processes * _ROW.itemsize
        if not row:
            os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        shared = np.frombuffer(memory, _SHARED, 1)
        self._outlook = shared["outlook"]
        self._rows = rows = np.frombuffer(memory, _ROW, processes, _SHARED.itemsize)
        # As memory views, because their sum takes a tenth of the time of a small array's.
        self.requests, self.stored_bytes = rows["requests"].data, rows["stored_bytes"].data
        self.connections = rows["connections"].data
        self.by_network, self.by_client = rows["by_network"], rows["by_client"]
        self.row = row
        if not row:
            shared["hash_key"] = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
        self._hash_key = shared["hash_key"].tobytes()

    def clear(self, row: int) -> None:
        """Clear the row of a process that ended."""
        self._rows[row] = 0

    def publish(self, outlook: Outlook) -> None:
        """Write what gate 1 needs to know of the queue."""
        self._outlook[0] = outlook

    def outlook(self) -> Outlook:
        """Return what gate 1 knows of the queue, as the main process published it."""
        return Outlook(*self._outlook[0].item())

    def hash_of(self, name: str) -> int:
        """Return the index of a network or a client in its array; a few share one by chance."""
        # With a key, so that no client can choose addresses that share one with another's.
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=2, key=self._hash_key).digest(), "little")


class SharedRequestCounts(RequestCounts):
    """Gate 1's counts of all processes."""

    def __init__(self, shared: SharedCounts) -> None:
        super().__init__()
        self._shared = shared

    @property
    def requests(self) -> int:
        """Number of requests."""
        return sum(self._shared.requests)

    @property
    def stored_bytes(self) -> int:
        """Bytes of uploads."""
        return sum(self._shared.stored_bytes)

    def of(self, client: str) -> int:
        """Return the number of requests of a client."""
        return int(self._shared.by_client[:, self._shared.hash_of(client)].sum())

    def add(self, stored_bytes: int) -> None:
        """Add to the bytes of this process."""
        super().add(stored_bytes)
        self._shared.stored_bytes[self._shared.row] += stored_bytes

    def add_request(self, client: str, change: int) -> None:
        """Add a request of this process, or subtract it, with -1."""
        super().add_request(client, change)
        self._shared.requests[self._shared.row] += change
        self._shared.by_client[self._shared.row, self._shared.hash_of(client)] += change


class SharedConnectionCounts(ConnectionCounts):
    """Open connections of all processes."""

    def __init__(self, shared: SharedCounts) -> None:
        super().__init__()
        self._shared = shared

    @property
    def total(self) -> int:
        """Number of connections."""
        return sum(self._shared.connections)

    def of(self, network: str) -> int:
        """Return the connections from a network."""
        return int(self._shared.by_network[:, self._shared.hash_of(network)].sum())

    def add(self, network: str, change: int) -> None:
        """Add connections of this process."""
        super().add(network, change)
        self._shared.connections[self._shared.row] += change
        self._shared.by_network[self._shared.row, self._shared.hash_of(network)] += change
