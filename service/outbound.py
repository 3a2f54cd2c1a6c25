"""Requests that the service makes because a client asked for them: webhooks, recordings behind a URL.

Such a URL is untrusted: it may name the machine itself, its neighbours, or a cloud's metadata server. So the host must
be allowed, the scheme must be https, and a name is looked up once: addresses that are not public are dropped, and the
connection goes to one of the rest. A check followed by a connection to the name would ask the name server twice, and
the second answer may differ. Redirects are not followed, and proxies of the environment are not used, because a proxy
would connect without these checks.
"""

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpcore
import httpx

from service.tracing import current

_MAX_URL = 2048
_MAX_PORT = 65535
_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
# Threads for look-ups, in all and of one client; a name server that does not answer blocks one for some seconds.
_RESOLVERS, _RESOLVERS_OF_CLIENT = 32, 4
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052; the last 32 bits are an IPv4 address

Resolve = Callable[[str, int], Sequence[str]]
"""Resolves a name and a port to addresses; may block, and raises OSError."""


class ForbiddenUrlError(Exception):
    """The URL is not valid, or its host is not allowed; the message is for the client that gave it."""


class UnreachableError(Exception):
    """The host cannot be reached, or does not answer in time; the message is for the client that gave the URL."""


class NoLookupError(UnreachableError):
    """The name was not looked up: too many look-ups of this client are under way. Later there may be room."""


# Who a request is made for, while it is connected.
_CLIENT: ContextVar[str] = ContextVar("client")


def check_allowed(entry: str) -> str:
    """Return an entry of a list of allowed hosts: `hooks.example`, `*.example`, `*` or `http://receiver:9000`.

    Raises:
        ValueError: if it is not one of these forms.
    """
    if entry == "*" or _HOST.fullmatch(entry) or _origin(entry):
        return entry
    raise ValueError(f"{entry!r} is neither a host (hooks.example, *.example, *) nor an origin (http://receiver:9000)")


def is_public(address: str) -> bool:
    """Return whether an IP address is public; if an IPv4 address is embedded in it, whether that one is."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address) and (inner := _embedded(ip)) is not None:
        ip = inner
    site_local = isinstance(ip, IPv6Address) and ip.is_site_local
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not site_local


class Outbound:
    """Makes requests to untrusted URLs; to be closed.

    Args:
        allowed: hosts that requests may go to. `hooks.example` is one host, `*.example` all hosts under it, `*` any, by
            https and at public addresses. An origin, such as `http://receiver:9000`, may have any scheme and address,
            because the operator has named it. Empty means `*`.
        resolve: resolves names; the system's by default.
    """

    def __init__(self, allowed: Iterable[str] = (), *, resolve: Resolve | None = None) -> None:
        entries = [check_allowed(entry) for entry in allowed] or ["*"]
        self._origins = {origin for entry in entries if (origin := _origin(entry))}
        self._hosts = [entry for entry in entries if not _origin(entry)]
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, "resolve")
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=100,
            keepalive_expiry=5.0,
            network_backend=_CheckedBackend(
                {(host, port) for _, host, port in self._origins}, resolve or _resolve, self._resolvers
            ),
        )

    async def aclose(self) -> None:
        """Close its connections."""
        await self._pool.aclose()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        silence_seconds: float = 10.0,
        client: str,
    ) -> AsyncIterator[httpcore.Response]:
        """Make a request; within the block, read its answer: `status`, `headers`, `aiter_stream()`.

        There is no limit on the whole time; callers should set one (`asyncio.timeout`).

        Args:
            method: HTTP method.
            url: an untrusted URL.
            headers: headers to send; Host, Content-Length and the current trace are added.
            content: the body.
            silence_seconds: longest wait for name resolution, the connection, and each block of the answer.
            client: who gave the URL: a key, or the network of an address without one. Each has a few look-ups of names
                at the same time.

        Raises:
            ForbiddenUrlError: if the URL, or every address of its host, is forbidden.
            NoLookupError: if the client has too many look-ups under way; nothing was sent.
            UnreachableError: if the request cannot be made, or its answer stops.
        """
        target = self.check(url)
        _CLIENT.set(client)
        trace = current()
        traced = [] if trace is None else [("traceparent", str(trace.traceparent))]
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), silence_seconds)
        try:
            async with self._pool.stream(
                method,
                httpcore.URL(scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path),
                headers=[("Host", target.netloc), *(headers or {}).items(), *traced],
                content=content,
                extensions={"timeout": timeouts},
            ) as response:
                yield response
        except httpcore.TimeoutException:
            raise UnreachableError(f"{target.host} did not answer within {silence_seconds:g} s.") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
            raise UnreachableError(f"{target.host} cannot be reached: {error or type(error).__name__}.") from None

    def check(self, url: str) -> httpx.URL:
        """Return a URL in its parts if it is allowed, as far as can be seen without resolving its name.

        Raises:
            ForbiddenUrlError: if it is forbidden; the message says why.
        """
        try:
            target = httpx.URL(url)
            name = target.host  # decoded from IDNA, which may fail
        except (httpx.InvalidURL, ValueError):
            raise ForbiddenUrlError("It is not a URL.") from None
        if len(url) > _MAX_URL or target.scheme not in ("http", "https") or not name:
            raise ForbiddenUrlError(f"It is not a URL of https with a host, of up to {_MAX_URL} characters.")
        if target.port is not None and not 0 < target.port <= _MAX_PORT:
            raise ForbiddenUrlError(f"There is no port {target.port}.")
        if target.userinfo:
            raise ForbiddenUrlError("A URL must not have a name and a password in it.")
        if _origin_of(target) in self._origins:
            return target
        if target.scheme != "https":
            raise ForbiddenUrlError("Only https is allowed.")
        host = _host(target).rstrip(".")
        if not any(_matches(host, entry) for entry in self._hosts):
            raise ForbiddenUrlError(f"The host {host!r} is not one that requests may go to.")
        with suppress(ValueError):  # a name, which is resolved later
            if not is_public(host):
                raise ForbiddenUrlError(f"The address {host} is not a public one.")
        return target


class _CheckedBackend(httpcore.AnyIOBackend):
    """Connects to checked addresses, never to names; some hosts and ports may have private ones."""

    def __init__(self, may_be_private: set[tuple[str, int]], resolve: Resolve, threads: ThreadPoolExecutor) -> None:
        self._may_be_private = may_be_private
        self._resolve = resolve
        self._threads = threads
        self._lookups: Counter[str] = Counter()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve the host, and connect to the first allowed address that answers."""
        try:
            async with asyncio.timeout(timeout):
                found = await self._looked_up(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except (OSError, UnicodeError):
            raise httpcore.ConnectError("its name is not known") from None
        is_named = (host, port) in self._may_be_private
        usable = found if is_named else [address for address in found if is_public(address)]
        if not usable:
            raise ForbiddenUrlError(f"The host {host!r} has no public address.")
        for address in usable[:-1]:
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await super().connect_tcp(usable[-1], port, timeout, local_address, socket_options)

    async def _looked_up(self, host: str, port: int) -> Sequence[str]:
        """Look up a name in a thread, if the client may have one more; one that is given up still counts to its end."""
        client = _CLIENT.get()
        if self._lookups[client] >= _RESOLVERS_OF_CLIENT or self._lookups.total() >= _RESOLVERS:
            raise NoLookupError("too many names are looked up at this moment; try again later.")
        self._lookups[client] += 1
        lookup = asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, host, port)

        def end(done: "asyncio.Future[Sequence[str]]") -> None:
            self._lookups[client] -= 1
            if not done.cancelled():
                done.exception()  # its request may have ended

        lookup.add_done_callback(end)
        return await asyncio.shield(lookup)


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _embedded(ip: IPv6Address) -> IPv4Address | None:
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour


def _origin(entry: str) -> tuple[str, str, int] | None:
    if "://" not in entry:
        return None
    try:
        url = httpx.URL(entry)
    except (httpx.InvalidURL, ValueError):
        return None
    is_origin = url.scheme in ("http", "https") and url.host and url.path == "/" and not url.query and not url.userinfo
    return _origin_of(url) if is_origin and not url.fragment else None


def _origin_of(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, _host(url), url.port or {"http": 80, "https": 443}[url.scheme]


def _host(url: httpx.URL) -> str:
    return url.raw_host.decode("ascii")


def _matches(host: str, entry: str) -> bool:
    return entry in ("*", host) or (entry.startswith("*.") and host.endswith(entry[1:]))
