"""Counting open connections, in all and of each address."""

from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from service.metrics import ConnectionRefusal, Metrics

# A provider gives one customer a whole /64 of IPv6, so its addresses count as one.
_IPV6_PREFIX = 64
# Refused connections that linger at the same time, so that clients can read the answer; any more are closed at once.
_MOST_LEAVING = 256


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        most: open connections in all.
        most_of_address: open connections of one address, or of one /64 of IPv6.
        head_seconds: time from the first byte of a request, or from opening a connection, to the end of the headers.
        silence_seconds: longest pause in a body that is no longer needed, or while the client reads an answer.
        body_seconds: longest time for the rest of a body that is no longer needed, or until the client has read nearly
            all of what is written.
    """

    most: int
    most_of_address: int
    head_seconds: float
    silence_seconds: float
    body_seconds: float


class Places:
    """Counts of open connections, in all and by the place that they come from: an address, or a /64 of IPv6.

    Attributes:
        here: connections of this process.
    """

    def __init__(self) -> None:
        self.here = 0
        self._by_place: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Number of connections."""
        return self.here

    def of(self, place: str) -> int:
        """Return the connections from a place."""
        return self._by_place[place]

    def add(self, place: str, change: int) -> None:
        """Add connections; a negative number subtracts."""
        self.here += change
        self._by_place[place] += change
        if not self._by_place[place]:
            del self._by_place[place]


class Connections:
    """Counts the connections of a service.

    Args:
        limits: the limits.
        metrics: metrics of open and refused connections.
        places: the counts; with several HTTP processes, of all of them.
    """

    def __init__(self, limits: ConnectionLimits, metrics: Metrics, places: Places | None = None) -> None:
        self.limits = limits
        self._metrics = metrics
        self._places = places or Places()
        self._leaving = 0

    def enter(self, address: str) -> ConnectionRefusal | None:
        """Count a connection, or return which limit it exceeds."""
        place = _place(address)
        if self._places.total >= self.limits.most:
            return "connections"
        if self._places.of(place) >= self.limits.most_of_address:
            return "address_connections"
        self._count(place, 1)
        return None

    def leave(self, address: str) -> None:
        """Stop counting a connection that entered."""
        self._count(_place(address), -1)

    def enter_leaving(self) -> bool:
        """Count a refused connection that lingers; False if there are too many."""
        has_room = self._leaving < _MOST_LEAVING
        self._leaving += has_room
        return has_room

    def left(self) -> None:
        """Stop counting a refused connection."""
        self._leaving -= 1

    def note_refusal(self, reason: ConnectionRefusal) -> None:
        """Count a refusal."""
        self._metrics.connections_refused.labels(reason).inc()

    def _count(self, place: str, change: int) -> None:
        self._places.add(place, change)
        self._metrics.connections.set(self._places.here)


def _place(address: str) -> str:
    try:
        known = ip_address(address)
    except ValueError:  # a socket without an address
        return address
    if not isinstance(known, IPv6Address):
        return address
    if known.ipv4_mapped:
        return str(known.ipv4_mapped)
    return str(ip_network((int(known), _IPV6_PREFIX), strict=False))
