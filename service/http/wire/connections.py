"""Counting open connections, in all and of each address, of which one may have half of all."""

import logging
import math
import resource
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.requests import HTTPConnection

from service.dispatch.counts import Counts
from service.metrics import ConnectionRefusal, Metrics
from service.settings import Settings

log = logging.getLogger("steno")

# A provider gives one customer a whole /64 of IPv6, so its addresses count as one.
_IPV6_PREFIX = 64
# Refused connections that linger at the same time, so that clients can read the answer; any more are closed at once.
_MOST_LEAVING = 256

# Longest time from a new connection, or a request's first byte, to the end of the headers; and for a body to arrive,
# whether it is needed or not, or for a client to read nearly all of what is written.
HEAD_SECONDS, BODY_SECONDS = 10.0, 600.0


class Connections:
    """Counts the connections of a service; with several HTTP processes, `counts` are those of all.

    A process may have at most half of its open files as connections: uploads need some.

    Attributes:
        silence_seconds: longest pause in a body that is no longer needed, or while the client reads an answer.
        idle_seconds: longest time between two requests.
    """

    def __init__(self, settings: Settings, metrics: Metrics, counts: Counts | None = None) -> None:
        self.silence_seconds = settings.receive_timeout_seconds
        self.idle_seconds = settings.keep_alive_seconds
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = settings.max_connections
        self._most_of_address = math.ceil(self._most / 2)
        self._most_of_process = min(self._most, files // 2)
        if self._most_of_process < self._most:
            log.warning("connections limited by open files", extra={"files": files, "connections": files // 2})
        self._metrics = metrics
        self._counts = counts or Counts()
        self._leaving = 0

    def enter(self, address: str) -> ConnectionRefusal | None:
        """Count a connection, or return which limit it exceeds."""
        network = network_of(address)
        if self._counts.total >= self._most or self._counts.own >= self._most_of_process:
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
