"""How many connections are open, in all and of each address."""

from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from service.metrics import ConnectionRefusal, Metrics

# What one customer of a provider is given of IPv6: who has one address of it has all.
_IPV6_PREFIX = 64
# Connections without a place that are closed with care, so that their answer is read; any more are just closed.
_MOST_LEAVING = 256


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What clients may do with connections.

    Attributes:
        most: connections open at once.
        most_of_address: those of one address, or of one /64 of IPv6.
        head_seconds: from the first byte of a request to the end of its headers; of a new connection, from its opening.
        silence_seconds: longest pause in a body that is no longer wanted, or in the taking of an answer.
        body_seconds: longest time for the rest of a body that is no longer wanted.
    """

    most: int
    most_of_address: int
    head_seconds: float
    silence_seconds: float
    body_seconds: float


class Connections:
    """Counts the connections of a service.

    Args:
        limits: when there are too many.
        metrics: told how many there are, and what was refused.
    """

    def __init__(self, limits: ConnectionLimits, metrics: Metrics) -> None:
        self.limits = limits
        self._metrics = metrics
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._leaving = 0

    def enter(self, address: str) -> ConnectionRefusal | None:
        """Count a connection, or tell what it is one too many of."""
        place = _place(address)
        if self._total >= self.limits.most:
            return "connections"
        if self._by_address[place] >= self.limits.most_of_address:
            return "address_connections"
        self._by_address[place] += 1
        self._count(1)
        return None

    def leave(self, address: str) -> None:
        """Count a connection that entered no longer."""
        place = _place(address)
        self._by_address[place] -= 1
        if not self._by_address[place]:
            del self._by_address[place]
        self._count(-1)

    def enter_leaving(self) -> bool:
        """Count a connection without a place that lingers, if there is room for it."""
        has_room = self._leaving < _MOST_LEAVING
        self._leaving += has_room
        return has_room

    def left(self) -> None:
        """Count it no longer."""
        self._leaving -= 1

    def note_refusal(self, reason: ConnectionRefusal) -> None:
        """Count an answer without a request."""
        self._metrics.connections_refused.labels(reason).inc()

    def _count(self, change: int) -> None:
        self._total += change
        self._metrics.connections.set(self._total)


def _place(address: str) -> str:
    try:
        known = ip_address(address)
    except ValueError:  # of a socket without one
        return address
    if not isinstance(known, IPv6Address):
        return address
    if known.ipv4_mapped:
        return str(known.ipv4_mapped)
    return str(ip_network((int(known), _IPV6_PREFIX), strict=False))
