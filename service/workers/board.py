"""Counts and figures that all processes read without asking each other, in memory that they map.

Each process writes its own row only, and a sum over all rows is the count of the service. Two processes that add at the
same time may exceed a limit by one request each; gate 2, in the main process, is exact. The main process clears the row
of a worker that ended.
"""

import hashlib
import math
import mmap
import os
import secrets

from service.dispatch.admission import Outlook, RequestCounts
from service.http.connections import ConnectionCounts

_FIGURES = 5  # is_draining, is_loaded, loading_seconds, waiting_seconds, predicted_wait
_SEED_BYTES = 16
_COUNTS = 3  # requests, stored bytes, connections
_PLACES = 1 << 16
_HEAD_BYTES = 4096


class Board:
    """The memory.

    Args:
        descriptor: its file, which has no name.
        rows: number of processes: the main process has row 0.
        row: row of this process.
    """

    def __init__(self, descriptor: int, rows: int, row: int) -> None:
        counts = rows * _COUNTS * 8
        if not row:
            os.ftruncate(
                descriptor, _HEAD_BYTES + mmap.PAGESIZE * math.ceil(counts / mmap.PAGESIZE) + rows * _PLACES * 4
            )
        self._rows, self._row = rows, row
        whole = memoryview(mmap.mmap(descriptor, 0))
        self.figures = whole[: _FIGURES * 8].cast("d")
        seed = whole[_FIGURES * 8 : _FIGURES * 8 + _SEED_BYTES]
        if not row:
            seed[:] = secrets.token_bytes(_SEED_BYTES)
        self._seed = bytes(seed)
        self._counts = whole[_HEAD_BYTES : _HEAD_BYTES + counts].cast("q")
        self._places = whole[len(whole) - rows * _PLACES * 4 :].cast("i")

    def total(self, column: int) -> int:
        """Return the sum of a count over all processes."""
        return sum(self._counts[column::_COUNTS])

    def add(self, column: int, change: int) -> int:
        """Add to a count of this process, and return it."""
        at = self._row * _COUNTS + column
        self._counts[at] += change
        return self._counts[at]

    def of_place(self, place: str) -> int:
        """Return the connections from a place: an address, or several that share a slot by chance."""
        return sum(self._places[self._slot(place) :: _PLACES])

    def add_place(self, place: str, change: int) -> None:
        """Add to the connections of this process from a place."""
        self._places[self._row * _PLACES + self._slot(place)] += change

    def clear(self, row: int) -> None:
        """Clear the row of a process that ended."""
        for column in range(_COUNTS):
            self._counts[row * _COUNTS + column] = 0
        self._places[row * _PLACES : (row + 1) * _PLACES] = memoryview(bytes(_PLACES * 4)).cast("i")

    def _slot(self, place: str) -> int:
        # With a key, so that no client can choose addresses that share a slot with another's.
        return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=2, key=self._seed).digest(), "little")


class BoardTally(RequestCounts):
    """Gate 1's counts of all processes."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    @property
    def requests(self) -> int:
        """Number of requests."""
        return self._board.total(0)

    @property
    def stored_bytes(self) -> int:
        """Bytes of uploads."""
        return self._board.total(1)

    def add(self, requests: int = 0, stored_bytes: int = 0) -> None:
        """Add to the counts of this process."""
        super().add(requests, stored_bytes)
        if requests:
            self._board.add(0, requests)
        if stored_bytes:
            self._board.add(1, stored_bytes)


class BoardPlaces(ConnectionCounts):
    """Open connections of all processes."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    @property
    def total(self) -> int:
        """Number of connections."""
        return self._board.total(2)

    def of(self, place: str) -> int:
        """Return the connections from a place."""
        return self._board.of_place(place)

    def add(self, place: str, change: int) -> None:
        """Add connections of this process."""
        super().add(place, change)
        self._board.add(2, change)
        self._board.add_place(place, change)


class BoardOutlook:
    """What gate 1 knows of the queue, as the main process published it."""

    def __init__(self, board: Board) -> None:
        self._figures = board.figures

    @property
    def is_draining(self) -> bool:
        """Whether the service shuts down."""
        return bool(self._figures[0])

    @property
    def is_loaded(self) -> bool:
        """Whether an engine has been ready."""
        return bool(self._figures[1])

    @property
    def loading_seconds(self) -> float:
        """How long a model takes to load."""
        return self._figures[2]

    @property
    def waiting_seconds(self) -> float:
        """The decoded audio without a transcript."""
        return self._figures[3]

    @property
    def predicted_wait(self) -> float:
        """Seconds until a recording accepted now would have its turn."""
        return self._figures[4]


def publish(board: Board, outlook: Outlook) -> None:
    """Write what gate 1 needs to know of the queue."""
    figures = board.figures
    figures[0], figures[1] = outlook.is_draining, outlook.is_loaded
    figures[2], figures[3], figures[4] = outlook.loading_seconds, outlook.waiting_seconds, outlook.predicted_wait
