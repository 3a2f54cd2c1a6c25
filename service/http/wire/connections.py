"""Counting open connections, in all and of each address, of which one may have half of all."""

import math
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.requests import HTTPConnection

from service.dispatch.counts import Counts
from service.metrics import ConnectionRefusal, Metrics

# A provider gives one customer a whole /64 of IPv6, so its addresses count as one.
_IPV6_PREFIX = 64
# Refused connections that linger at the same time, so that clients can read the answer; any more are closed at once.
_MOST_LEAVING = 256

# Longest time from a new connection, or a request's first byte, to the end of the headers; and for a body to arrive,
# whether it is needed or not, or for a client to read nearly all of what is written.
HEAD_SECONDS, BODY_SECONDS = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        most: open connections in all.
        most_of_process: open connections of one HTTP process, whose files they are.
        silence_seconds: longest pause in a body that is no longer needed, or while the client reads an answer.
        idle_seconds: longest time between two requests.
    """

    most: int
    most_of_process: int
    silence_seconds: float
    idle_seconds: float


class Connections:
    """Counts the connections of a service; with several HTTP processes, `counts` are those of all."""

    def __init__(self, limits: ConnectionLimits, metrics: Metrics, counts: Counts | None = None) -> None:
        self.limits = limits
        self._most_of_address = math.ceil(limits.most / 2)
        self._metrics = metrics
        self._counts = counts or Counts()
        self._leaving = 0

    def enter(self, address: str) -> ConnectionRefusal | None:
        """Count a connection, or return which limit it exceeds."""
        network = network_of(address)
        if self._counts.total >= self.limits.most or self._counts.own >= self.limits.most_of_process:
            return "connections"
        if self._counts.of(network) >= self._most_of_address:
            return "address_connections"
        self._count(network, 1)
        return None

    def leave(self, address: str) -> None:
        """Stop counting a connection that entered."""
        self._count(network_of(address), -1)

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

    def _count(self, network: str, change: int) -> None:
        self._counts.add(change, network)
        self._metrics.connections.set(self._counts.own)


def client_of(request: HTTPConnection, key: str | None) -> str:
    """Return who has a share of what is limited: the name of a key, or the network of an address without one."""
    if key is not None:
        return f"key {key}"
    return network_of(request.client.host) if request.client else ""


@lru_cache(1024)
def network_of(address: str) -> str:
    """Return an address of IPv4, or the /64 of one of IPv6, as text."""
    try:
        known = ip_address(address)
    except ValueError:  # a socket without an address
        return address
    if not isinstance(known, IPv6Address):
        return address
    if known.ipv4_mapped:
        return str(known.ipv4_mapped)
    return str(ip_network((int(known), _IPV6_PREFIX), strict=False))
