"""A client's connection: uvicorn's httptools protocol, with bounds that it has no settings for.

httptools accepts heads of any length and duration, and takes what follows an offered upgrade for another protocol;
uvicorn waits for ever for a client that does not read its answer. h11 has bounds on heads and ignores upgrades, but
costs 0.1 ms more for each request, half of the time of a small answer.
"""

import asyncio
import uuid
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.http.connections import Connections
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response
from service.metrics import ConnectionRefusal

MAX_HEAD_BYTES = 1 << 16
MAX_HEADERS = 256
# After a refusal, the rest of the request is read within these bounds, because many clients read only after sending.
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1 << 20
_RETRY_AFTER = 1

_REFUSALS: dict[ConnectionRefusal, ErrorCode] = {
    "connections": ErrorCode.OVERLOADED,
    "address_connections": ErrorCode.OVERLOADED,
    "head_timeout": ErrorCode.REQUEST_TIMEOUT,
    "head_too_large": ErrorCode.HEAD_TOO_LARGE,
    "uri_too_long": ErrorCode.URI_TOO_LONG,
    "malformed": ErrorCode.MALFORMED_REQUEST,
    "connect": ErrorCode.METHOD_NOT_ALLOWED,
}


class AnswerTransport:
    """The transport of one request, as uvicorn uses it: the head of the answer is sent with what follows it at once.

    uvicorn writes them one after the other, which is two calls of the system and two packets.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = b""  # None once it is sent

    def write(self, data: bytes) -> None:
        """Write data; what is written first is held until the next call, or the next round of the event loop."""
        if self._head is None:
            self._transport.write(data)
        elif not self._head:
            self._head = data
            self._loop.call_soon(self.flush)
        else:
            self._transport.write(self._head + data)
            self._head = None

    def flush(self) -> None:
        """Write what is held."""
        if self._head:
            self._transport.write(self._head)
            self._head = None

    def is_closing(self) -> bool:
        """Return whether the connection is closing."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection when everything is written."""
        self.flush()
        self._transport.close()


class Connection(HttpToolsProtocol):
    """One connection.

    A head may have at most `MAX_HEAD_BYTES`, however it is split; what was read of it together with the end of the
    request before counts only when the head is complete. Refusals are answers in the shape of all errors, and close the
    connection.

    Args:
        connections: the open connections, and their limits.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self._limits = connections.limits
        self._address: str | None = None  # set while the connection is counted under it
        self._is_in_head = True
        self._head_bytes = 0  # bytes so far of an unfinished head
        self._line_bytes = 0  # bytes of the parsed parts of the head
        self._empty_bytes = 0  # bytes fed since a piece had data of the body: chunk extensions and trailers
        self._is_resuming = False
        self._lingering: int | None = None  # bytes read since a refusal
        self._running: RequestResponseCycle | None = None
        self._answer: AnswerTransport | None = None
        # The timeout of a head, of the rest of a body, or of what comes after a refusal; never of two of them.
        self._arriving: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._taking_ends = 0.0
        self._left_to_take = 0
        self._body_ends = 0.0
        self._last_data = 0.0

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, or refuse it."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if refusal := self._all.enter(address):
            whose = "this address may have" if refusal == "address_connections" else "the service has"
            self._refuse(refusal, f"All connections that {whose} are taken.")
        else:
            self._address = address
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection, and end the wait of all its requests."""
        if self._address is not None:
            self._all.leave(self._address)
        elif self._lingering is not None:
            self._all.left()
        self._stop_waiting()
        self._unset_keepalive_if_required()
        if self._taking is not None:
            self._taking.cancel()
        # uvicorn wakes the newest request, which with pipelining is not the one under way.
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data in pieces that end where a head must have ended."""
        self._unset_keepalive_if_required()
        self._last_data = self.loop.time()
        if self._lingering is not None:
            self._lingering += len(data)
            if self._lingering > _LINGER_BYTES:
                self.transport.abort()
            return
        rest = memoryview(data)
        while rest and self._lingering is None and not self.transport.is_closing():
            room = MAX_HEAD_BYTES - self._head_bytes if self._is_in_head else len(rest)
            piece, rest = rest[:room], rest[room:]
            while piece:
                piece = self._feed(piece)
        if self._is_idle and self._head_bytes:
            self._arriving = self._arriving or self.loop.call_later(self._limits.head_seconds, self._end_head)
        elif self._is_idle and self.timeout_keep_alive_task is None:  # the end of a body whose answer was sent before
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def pause_writing(self) -> None:
        """Start the timeout of a client that does not read its answer."""
        super().pause_writing()
        self._watch_taking()

    def resume_writing(self) -> None:
        """Stop the timeout: the client reads."""
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Begin a request, unless one continues."""
        if not self._is_resuming:
            self._line_bytes = 0
            self._head_bytes = max(1, self._head_bytes)  # if it came together with the end of the request before
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Store the target."""
        if not self._is_resuming:
            self._line_bytes += len(url)
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers are ignored."""
        if self._is_in_head and not self._is_resuming:
            self._line_bytes += len(name) + len(value) + 4
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, unless it is refused.

        Raises:
            HttpParserError: if it is, which stops the parser.
        """
        if self._is_resuming:
            self._is_resuming = False
            return
        if self._line_bytes > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse_head()
            raise httptools.HttpParserError
        if self.parser.get_method() == b"CONNECT":
            self._refuse("connect", "This server is not a proxy.")
            raise httptools.HttpParserError
        self._is_in_head = False
        self._empty_bytes = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._empty_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request, unless the parser wrongly takes an upgrade for its end."""
        if self.parser.should_upgrade():
            return
        self._is_in_head = True
        self._head_bytes = 0
        self._stop_waiting()
        super().on_message_complete()

    # Called by uvicorn.

    def on_response_complete(self) -> None:
        """Continue with the next request on this connection, or close it."""
        if self._answer is not None:
            self._answer.flush()
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_taking()
        elif self._is_idle and self._head_bytes:
            self._await_head()
        elif not self._is_in_head and self.cycle.response_complete:
            self._body_ends = self.loop.time() + self._limits.body_seconds
            self._last_data = self.loop.time()
            self._await_body()

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP."""
        self._refuse("malformed", msg)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        super().timeout_keep_alive_handler()
        self._watch_taking()

    def shutdown(self) -> None:
        """Close when the request under way is answered."""
        super().shutdown()
        if self.transport.is_closing():
            self._watch_taking()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        self._answer = AnswerTransport(self.transport, self.loop)
        cycle.transport = self._answer  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    # Ours.

    @property
    def _is_idle(self) -> bool:
        """Whether every request that began was received and answered."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return self._is_in_head and is_answered and self._lingering is None and not self.transport.is_closing()

    def _feed(self, piece: memoryview) -> memoryview:
        """Parse a piece, and return the rest: what follows an offered upgrade."""
        if self._lingering is not None or self.transport.is_closing():
            return piece[:0]
        was_in_head = self._is_in_head
        if was_in_head:
            self._head_bytes += len(piece)
        else:
            self._empty_bytes += len(piece)  # reset when the parser finds bytes of a body
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offered:
            self._decline_upgrade()
            return piece[offered.args[0] :]
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return piece[:0]
        if was_in_head and self._is_in_head and self._head_bytes >= MAX_HEAD_BYTES:
            self._refuse_head()
        elif not self._is_in_head and self._empty_bytes > MAX_HEAD_BYTES:  # chunk extensions or trailers
            self.transport.abort()
        return piece[:0]

    def _decline_upgrade(self) -> None:
        """Make the parser ignore an offered upgrade (RFC 9110, 7.8), by giving it the head again without the offer."""
        framing = [(name, value) for name, value in self.headers if name in (b"content-length", b"transfer-encoding")]
        if not self.parser.should_keep_alive():
            framing.append((b"connection", b"close"))
        lines = b"".join(b"%b: %b\r\n" % header for header in framing)
        self._is_resuming = True
        try:
            self.parser.feed_data(b"POST / HTTP/%b\r\n%b\r\n" % (self.scope["http_version"].encode(), lines))
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _await_head(self) -> None:
        self._stop_waiting()
        self._arriving = self.loop.call_later(self._limits.head_seconds, self._end_head)

    def _end_head(self) -> None:
        self._arriving = None
        if not self.transport.is_closing():
            message = f"The headers of a request must arrive within {self._limits.head_seconds:g} s."
            self._refuse("head_timeout", message)

    def _await_body(self) -> None:
        """Wait for the rest of a body whose answer was sent, because the client may read only after sending."""
        due = min(self._last_data + self._limits.silence_seconds, self._body_ends)
        if due <= self.loop.time():
            self.transport.abort()
        else:
            self._arriving = self.loop.call_at(due, self._await_body)

    def _stop_waiting(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _watch_taking(self) -> None:
        """Close a connection when the client reads nothing for `silence_seconds`, or too little in `body_seconds`."""
        if self._taking is None:
            self._taking_ends = self.loop.time() + self._limits.body_seconds
            self._await_taking()

    def _await_taking(self) -> None:
        self._left_to_take = self.transport.get_write_buffer_size()
        due = min(self.loop.time() + self._limits.silence_seconds, self._taking_ends)
        self._taking = self.loop.call_at(due, self._check_taking)

    def _check_taking(self) -> None:
        self._taking = None
        has_read = self.transport.get_write_buffer_size() < self._left_to_take
        if has_read and self.loop.time() < self._taking_ends:
            self._await_taking()
        else:
            self.transport.abort()

    def _refuse_head(self) -> None:
        if 2 * len(self.url) > MAX_HEAD_BYTES:
            message = f"The address takes over half of the {MAX_HEAD_BYTES} bytes that the head of a request may have."
            self._refuse("uri_too_long", message)
        else:
            message = f"The head of a request may have {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers."
            self._refuse("head_too_large", message)

    def _refuse(self, reason: ConnectionRefusal, message: str) -> None:
        """Answer with an error and close; close without an answer while another is due, or if too many linger."""
        if self._lingering is not None or self.transport.is_closing():
            return
        self._all.note_refusal(reason)
        self._stop_waiting()
        is_busy = self.cycle is not None and not self.cycle.response_complete
        # A counted connection stays counted until it is closed.
        if is_busy or (self._address is None and not self._all.enter_leaving()):
            self.transport.abort()
            return
        self.transport.write(self._refusal(reason, message))
        # Not closed at once: data that the client still sends would cause a reset, and the answer would be lost.
        self._lingering = 0
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._arriving = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _refusal(self, reason: ConnectionRefusal, message: str) -> bytes:
        code = _REFUSALS[reason]
        status = HTTPStatus(code.status)
        retry_after = _RETRY_AFTER if code.is_temporary else None
        answer = error_response(RequestError(message, code=code, retry_after=retry_after))
        answer.headers["x-request-id"] = uuid.uuid4().hex
        answer.headers["connection"] = "close"
        lines = [b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *answer.raw_headers)]
        status_line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        return b"".join((status_line, *lines, b"\r\n", bytes(answer.body)))
