"""How a request is framed (RFC 9112): the end of its head, what the head says of the body, where a body in chunks ends.

Stricter than parsers are: wherever two of them could differ on what belongs to which request, it is refused. Each byte
is looked at a fixed number of times, whatever stands around it.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from service.metrics import ConnectionRefusal

MAX_HEAD_BYTES = 1 << 16
_MAX_HEADERS = 256
_LARGE_HEAD = f"The head of a request may have {MAX_HEAD_BYTES} bytes and {_MAX_HEADERS} headers."
_LONG_ADDRESS = f"The address takes over half of the {MAX_HEAD_BYTES} bytes that the head of a request may have."
_CR = 13
_HEX = b"0123456789abcdefABCDEF"
_HOST = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~!$&'()*+,;=%:[]"
_READ = {b"host", b"content-length", b"transfer-encoding", b"upgrade"}
_MOST_OPTIONS = 256
_LONGEST_HOST = 300  # a name has 253 characters at most
_LINES_AT_ONCE = 256  # of chunks: under a millisecond
_MOST_DIGITS = 15  # of the length of a body or chunk: more than any disk holds, less than 64 bits


class HttpError(Exception):
    """A request that is refused; the message and the reason say why."""

    def __init__(self, message: str, reason: ConnectionRefusal = "malformed") -> None:
        super().__init__(message)
        self.reason: ConnectionRefusal = reason


class HeadReader:
    """Finds the end of one head, in bytes that come in any pieces.

    Attributes:
        lines: its lines, without their ends, once it is complete.
    """

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._begin = 0
        self._searched = 0
        self._has_first_line = False

    def end(self, data: bytearray) -> int:
        """Return where the head ends in the data that begins with it; 0 while its end has not come.

        Args:
            data: the same bytes as in the last call, and those that came since.

        Raises:
            HttpError: for a first line that is not HTTP's, a line that does not end with CR LF, or too much of either.
        """
        while data.startswith(b"\r\n", self._begin):  # empty lines before a request are none of it
            self._begin += 2
        end = data.find(b"\r\n\r\n", max(self._begin, self._searched - 3), MAX_HEAD_BYTES)
        if end < 0:
            self._look_ahead(data)
            return 0
        head = bytes(data[self._begin : end])
        self.lines = head.split(b"\r\n")
        ends = len(self.lines) - 1
        if not head[:1].isalpha() or head.count(b"\r") != ends or head.count(b"\n") != ends or b"\0" in head:
            raise HttpError("A line of the head does not end with CR LF, or has bytes that are no text.")
        if ends > _MAX_HEADERS:
            raise HttpError(_LARGE_HEAD, "head_too_large")
        return end + 4

    def _look_ahead(self, data: bytearray) -> None:
        """Refuse at once what no end could make a head."""
        first, begin, self._searched = self._searched, self._begin, min(len(data), MAX_HEAD_BYTES)
        if len(data) > begin and not data[begin : begin + 1].isalpha() and data[begin:] != b"\r":
            raise HttpError("The first line is not one of HTTP/1.0 or HTTP/1.1.")
        if not self._has_first_line and (newline := data.find(b"\n", max(first, begin), MAX_HEAD_BYTES)) >= 0:
            self._has_first_line = True
            if data[newline - 1] != _CR:
                raise HttpError("The first line does not end with CR LF.")
            _request_line(bytes(data[begin : newline - 1]))
        if len(data) >= MAX_HEAD_BYTES:
            newline = data.find(b"\n", begin, MAX_HEAD_BYTES)
            if 2 * ((newline if newline >= 0 else MAX_HEAD_BYTES) - begin) > MAX_HEAD_BYTES:
                raise HttpError(_LONG_ADDRESS, "uri_too_long")
            raise HttpError(_LARGE_HEAD, "head_too_large")


class ChunkedBody:
    """Finds the end of a body in chunks, with its trailers.

    Attributes:
        is_complete: whether the end has come.
        trailing: of the bytes that were taken last, how many, at their end, are trailers and the end.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self.trailing = 0
        self._due = 0  # bytes of the current chunk and the end of its line that have not come
        self._line = bytearray()
        self._is_in_trailers = False
        self._empty_bytes = 0  # of extensions and trailers since the last data

    def take(self, data: bytearray) -> int:
        """Return how many of the next bytes belong to the body; of many small chunks only the first.

        Raises:
            HttpError: for a size that is none, and for extensions or trailers over the bound of a head.
        """
        at = self.trailing = lines = 0
        while at < len(data) and lines < _LINES_AT_ONCE and not self.is_complete:
            if self._due:
                step = min(self._due, len(data) - at)
                self._due -= step
                at += step
                self._empty_bytes = 0
                continue
            newline = data.find(b"\n", at)
            end = newline + 1 if newline >= 0 else len(data)
            self._empty_bytes += end - at
            if self._empty_bytes > MAX_HEAD_BYTES:
                raise HttpError(_LARGE_HEAD, "head_too_large")
            self._line += data[at:end]
            self.trailing += self._is_in_trailers * (end - at)
            at = end
            if newline >= 0:
                lines += 1
                self._end_line()
        return at

    def _end_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if not line.endswith(b"\r\n"):
            raise HttpError("A line between chunks does not end with CR LF.")
        if self._is_in_trailers:
            self.is_complete = line == b"\r\n"
            return
        size = line[:-2].partition(b";")[0].rstrip(b" \t")
        if not 0 < len(size) <= _MOST_DIGITS or size.translate(None, _HEX):
            raise HttpError("The size of a chunk is not a hexadecimal number.")
        length = int(size, 16)
        self._is_in_trailers = not length
        self._due = length + 2 if length else 0


@dataclass(frozen=True, slots=True)
class Head:
    """What a head says.

    Attributes:
        method: the method.
        body: bytes of the body, or where its end is found.
        hosts: the hosts that it is meant for, in lower case, without ports; of HTTP/1.0 perhaps none.
        is_offer: whether it offers to go on with another protocol.
    """

    method: bytes
    body: int | ChunkedBody
    hosts: tuple[str, ...]
    is_offer: bool


def read_head(lines: list[bytes]) -> Head:
    """Read the lines of a head.

    Raises:
        HttpError: if it is not HTTP/1.0 or 1.1, names no host or several, or says the body's length in none of the
            ways that are beyond doubt.
    """
    method, target, version = _request_line(lines[0])
    found: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or name.strip() != name:
            raise HttpError("A header is not of the form NAME: VALUE.")
        name = name.lower()
        if name in _READ:
            if name in found and name != b"upgrade":
                raise HttpError(f"The header {name.decode()} is there twice.")
            found[name] = value.strip(b" \t")
    host = found.get(b"host")
    if host is None and version == b"HTTP/1.1":
        raise HttpError("There is no Host header.")
    hosts = [] if host is None else [_name_of(host)]
    path, _, query = target.partition(b"?")
    if query.count(b"&") > _MOST_OPTIONS:  # each is an object and some microseconds
        raise HttpError(f"The query has over {_MOST_OPTIONS} options.")
    if b"%2" in path:
        path = path.replace(b"%2e", b".").replace(b"%2E", b".").replace(b"%2f", b"/").replace(b"%2F", b"/")
    if b"#" in path or not {b".", b".."}.isdisjoint(path.split(b"/")):
        raise HttpError("The address has a fragment, or a part that is . or ..")
    _, scheme, address = target.partition(b"://")
    if scheme and not target.startswith(b"/"):
        hosts.append(_name_of(address.replace(b"?", b"/").partition(b"/")[0]))
    return Head(method, _body(found, version), tuple(hosts), b"upgrade" in found)


def without_offer(lines: list[bytes]) -> bytes:
    """Return a head without its offer of another protocol, which may be ignored (RFC 9110, 7.8)."""
    return b"\r\n".join((*(line for line in lines if not line.lower().startswith(b"upgrade:")), b"", b""))


@lru_cache(128)
def is_among(host: str, hosts: frozenset[str]) -> bool:
    """Return whether a host is one of these names, or an address of numbers, which no page can have by rebinding."""
    if host in hosts or ("localhost" in hosts and host.endswith(".localhost")):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _request_line(line: bytes) -> list[bytes]:
    words = line.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise HttpError("The first line is not one of HTTP/1.0 or HTTP/1.1.")
    return words


def _body(found: dict[bytes, bytes], version: bytes) -> int | ChunkedBody:
    coding, length = found.get(b"transfer-encoding"), found.get(b"content-length")
    if coding is not None:
        if coding.lower() != b"chunked" or length is not None or version == b"HTTP/1.0":
            raise HttpError("Transfer-Encoding may be chunked, in HTTP/1.1, without a Content-Length.")
        return ChunkedBody()
    if length is None:
        return 0
    if not length.isdigit() or len(length) > _MOST_DIGITS:
        raise HttpError("The Content-Length is not a number.")
    return int(length)


@lru_cache(128)
def _name_of(host: bytes) -> str:
    """Return the name or address of a Host header, without its port."""
    if len(host) > _LONGEST_HOST or host.translate(None, _HOST):
        raise HttpError("The Host header is no host.")
    name, port = host.decode().lower(), ""
    if name.startswith("["):
        name, end, port = name[1:].partition("]")
        if not end or not port.startswith(":"[: len(port)]):
            raise HttpError("The Host header is no host.")
        port = port.removeprefix(":")
    elif ":" in name:
        name, _, port = name.partition(":")
    if port and not port.isdigit():
        raise HttpError("The port of the Host header is no number.")
    return name.removesuffix(".")
