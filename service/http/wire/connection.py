"""A guard between a client's connection and uvicorn, with bounds that uvicorn has no settings for.

httptools accepts heads of any length and duration, and takes what follows an offered upgrade for another protocol;
uvicorn waits for ever for a client that does not read its answer. h11 has bounds on heads and ignores upgrades, but
costs 0.1 ms more for each request, half of the time of a small answer.

The guard gives uvicorn whole heads, one request at a time, and ASGI middleware says when an answer begins and ends.
"""

import asyncio
import contextvars
import uuid
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response
from service.http.wire import connections
from service.http.wire.framing import ChunkedBody, HeadReader, HttpError, is_among, read_head, without_offer
from service.metrics import ConnectionRefusal

# After a refusal, the rest of the request is read within these bounds, because many clients read only after sending.
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1 << 20
# What a client may send ahead of an answer, and an answer may gather before it is sent.
_MOST_AHEAD = 1 << 16
_RETRY_AFTER = 1
_STATE = "connection"

_REFUSALS: dict[ConnectionRefusal, ErrorCode] = {
    "connections": ErrorCode.OVERLOADED,
    "address_connections": ErrorCode.OVERLOADED,
    "head_timeout": ErrorCode.REQUEST_TIMEOUT,
    "head_too_large": ErrorCode.HEAD_TOO_LARGE,
    "uri_too_long": ErrorCode.URI_TOO_LONG,
    "malformed": ErrorCode.MALFORMED_REQUEST,
    "connect": ErrorCode.METHOD_NOT_ALLOWED,
    "host": ErrorCode.HOST_NOT_ALLOWED,
}


class Guarded:
    """ASGI middleware, outside of all other: tells a request's guard when its answer begins and ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guard: Guard = scope["state"].pop(_STATE)

        async def send_and_tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                guard.answer_begins()
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                guard.answer_ends()

        await self._app(scope, receive, send_and_tell)


class AnswerTransport(asyncio.Transport):
    """What uvicorn writes to: joins the writes of one turn of the event loop, each of which would be a packet."""

    def __init__(self, guard: "Guard", transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._guard = guard
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.is_closed = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return a fact of the connection."""
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write data, with what else is written in this turn."""
        if self._guard.is_parsing:  # uvicorn's refusal of what it was given
            self._guard.is_malformed = True
        elif not self.is_closed:
            if not self._held:
                self._loop.call_soon(self.flush)
            self._held.append(bytes(data))
            self._held_bytes += len(data)
            if self._held_bytes > _MOST_AHEAD:
                self.flush()

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            if not self._transport.is_closing():
                self._transport.write(b"".join(self._held))
            self._held.clear()
            self._held_bytes = 0

    def is_closing(self) -> bool:
        """Return whether the connection is closing."""
        return self.is_closed or self._transport.is_closing()

    def close(self) -> None:
        """Close the connection when everything is written."""
        if not self._guard.is_parsing and not self.is_closed:
            self.flush()
            self.is_closed = True
            self._guard.close()

    def pause_reading(self) -> None:
        """Let the client wait with the rest of its body."""
        self._guard.let_wait(True)

    def resume_reading(self) -> None:
        """Let the client go on."""
        self._guard.let_wait(False)


class Guard(asyncio.Protocol):
    """One connection.

    A head may have at most `MAX_HEAD_BYTES`, however it is split. Refusals are answers in the shape of all errors, and
    close the connection.

    Args:
        config: uvicorn's.
        server_state: uvicorn's.
        app_state: uvicorn's.
        open_ones: the open connections, and their limits.
        hosts: the names that requests may be meant for; None for any.

    Attributes:
        is_parsing: whether uvicorn parses just now; what it writes then is a refusal.
        is_malformed: whether it refused.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        open_ones: connections.Connections,
        hosts: frozenset[str] | None,
    ) -> None:
        self._loop = _loop or asyncio.get_running_loop()
        self._server_state = server_state
        self._behind = HttpToolsProtocol(config, server_state, {**app_state, _STATE: self}, self._loop)
        self._all = open_ones
        self._hosts = hosts
        self._address: str | None = None  # set while the connection is counted under it
        self._kept = bytearray()  # what came and was not passed on
        self._head = HeadReader()
        self._body: int | ChunkedBody = 0  # the rest of it
        self._is_known_behind = False
        self._is_new = True
        self._is_answer_due = False
        self._is_answer_begun = False
        self.is_parsing = False
        self.is_malformed = False
        self._is_body_waiting = False
        self._is_reading = True
        self._lingering: int | None = None  # bytes read since a refusal
        # One timeout at a time: of a head, of the rest of a body, of an idle connection, or after a refusal.
        self._waits_for = ""
        self._timer: asyncio.TimerHandle | None = None
        self._last_data = 0.0
        self._body_ends = 0.0
        # A client that does not read: how long it may still leave an answer's bytes in the buffer.
        self._taking: asyncio.TimerHandle | None = None
        self._taking_began = 0.0
        self._taking_seconds = connections.BODY_SECONDS
        self._left_to_take = 0

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, or refuse it."""
        self._real = transport
        self._transport = AnswerTransport(self, transport, self._loop)
        # Requests that wait for others' answers are not to begin in those others' context.
        self._context = contextvars.copy_context()
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if refusal := self._all.enter(address):
            whose = "this address may have" if refusal == "address_connections" else "the service has"
            self._refuse(refusal, f"All connections that {whose} are taken.")
        else:
            self._address = address
            self._is_known_behind = True
            self._behind.connection_made(self._transport)
            self._await_next()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Stop counting the connection, and tell the request under way."""
        if self._address is not None:
            self._all.leave(self._address)
        elif self._lingering is not None:
            self._all.left()
        self._wait("")
        self._stop_watching()
        self._tell_lost()

    def data_received(self, data: bytes) -> None:
        """Pass on what belongs to the request under way, or begin the next one."""
        self._last_data = self._loop.time()
        if self._lingering is not None:
            self._lingering += len(data)
            if self._lingering > _LINGER_BYTES:
                self._real.abort()
            return
        self._kept += data
        self._advance()

    def pause_writing(self) -> None:
        """Start the timeout of a client that does not read its answer."""
        self._behind.pause_writing()
        self._watch_taking()

    def resume_writing(self) -> None:
        """Stop the timeout: the client reads."""
        self._behind.resume_writing()
        if not self._transport.is_closed:  # then the rest is watched, too
            self._stop_watching()

    # Called by the application and by uvicorn.

    def answer_begins(self) -> None:
        """Note that no other answer can be given to this request."""
        self._is_answer_begun = True

    def answer_ends(self) -> None:
        """Go on with the next request on this connection, if that has come."""
        self._transport.flush()
        self._is_answer_due = False
        if self._lingering is not None:
            return
        if self._kept:
            self._loop.call_soon(self._advance, context=self._context)
        else:
            self._await_next()

    def let_wait(self, is_waiting: bool) -> None:
        """Let the client wait with the rest of its body."""
        self._is_body_waiting = is_waiting
        self._read_or_pause()

    def close(self) -> None:
        """Close when everything is written and, of a body that is not needed, as much was read as after a refusal.

        Closed at once, data that the client still sends would cause a reset, and the answer would be lost.
        """
        if self._real.is_closing():
            return
        if self._body and self._lingering is None:
            self._linger()
        else:
            self._real.close()
        self._watch_taking()

    # Requests.

    def _advance(self) -> None:
        while self._kept and not self._transport.is_closing():
            try:
                if self._body:
                    self._pass_body()
                    if self._body and self._kept:  # small chunks: others have their turn first
                        self._loop.call_soon(self._advance, context=self._context)
                        break
                elif self._is_answer_due or not self._pass_head():
                    break
            except HttpError as error:
                self._refuse(error.reason, str(error))
        if not self._transport.is_closing():
            self._read_or_pause()
            self._await_next()

    def _pass_head(self) -> bool:
        """Begin a request, if its head is complete."""
        end = self._head.end(self._kept)
        if not end:
            return False
        lines = self._head.lines
        head = read_head(lines)
        if head.method == b"CONNECT":
            raise HttpError("This server is not a proxy.", "connect")
        if self._hosts is not None and not all(is_among(host, self._hosts) for host in head.hosts):
            raise HttpError("The request is for another host than this service has (STENO_HOSTS).", "host")
        piece = without_offer(lines) if head.is_offer else bytes(self._kept[:end])
        del self._kept[:end]
        self._head = HeadReader()
        self._body = head.body
        self._is_new = False
        self._is_answer_due = True
        self._is_answer_begun = False
        self._taking_seconds = connections.BODY_SECONDS
        self._pass(piece)
        return True

    def _pass_body(self) -> None:
        """Pass on what has come of a body."""
        if isinstance(self._body, int):
            size = min(self._body, len(self._kept))
            self._body -= size
        else:
            size = self._body.take(self._kept)
            if self._body.trailing:  # uvicorn would take trailers for headers
                piece = self._kept[: size - self._body.trailing]
                del self._kept[:size]
                if self._body.is_complete:
                    piece += b"\r\n"
                    self._body = 0
                self._pass(piece)
                return
        if size == len(self._kept):
            piece, self._kept = self._kept, bytearray()
        else:
            piece = self._kept[:size]
            del self._kept[:size]
        self._pass(piece)

    def _pass(self, piece: bytes | bytearray) -> None:
        self.is_parsing = True
        self._behind.data_received(piece)  # type: ignore[arg-type]  # it takes any buffer
        self.is_parsing = False
        if self.is_malformed:
            raise HttpError("Invalid HTTP request received.")

    def _read_or_pause(self) -> None:
        is_reading = self._lingering is not None or not (self._is_body_waiting or len(self._kept) > _MOST_AHEAD)
        if is_reading != self._is_reading and not self._real.is_closing():
            self._is_reading = is_reading
            if is_reading:
                self._real.resume_reading()
            else:
                self._real.pause_reading()

    def _tell_lost(self) -> None:
        """Say to uvicorn that the connection is gone, without an error, with which it would keep its timer."""
        self._transport.flush()
        self._transport.is_closed = True
        if self._is_known_behind:
            self._is_known_behind = False
            self._behind.connection_lost(None)

    # Time.

    def _await_next(self) -> None:
        """Start the timeout of what must come next from the client."""
        if self._is_answer_due or self._transport.is_closing():
            self._wait("")
        elif self._body:
            self._wait("rest")
        else:
            self._wait("head" if self._kept or self._is_new else "idle")

    def _wait(self, what: str) -> None:
        if what == self._waits_for:
            return
        self._waits_for = what
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        match what:
            case "head":
                self._timer = self._loop.call_later(connections.HEAD_SECONDS, self._end_head)
            case "idle":
                self._timer = self._loop.call_later(self._all.idle_seconds, self._transport.close)
            case "rest":
                self._last_data = self._loop.time()
                self._body_ends = self._last_data + connections.BODY_SECONDS
                self._await_rest()
            case "end":
                self._timer = self._loop.call_later(_LINGER_SECONDS, self._end)

    def _end_head(self) -> None:
        message = f"The headers of a request must arrive within {connections.HEAD_SECONDS:g} s."
        self._refuse("head_timeout", message)

    def _await_rest(self) -> None:
        """Wait for the rest of a body whose answer was sent, because the client may read only after sending."""
        due = min(self._last_data + self._all.silence_seconds, self._body_ends)
        if due <= self._loop.time():
            self._real.abort()
        else:
            self._timer = self._loop.call_at(due, self._await_rest)

    def _end(self) -> None:
        """End a connection that lingered; an answer that is still being read has its own timeout."""
        if self._real.get_write_buffer_size():
            self._real.close()
        else:
            self._real.abort()

    def _watch_taking(self) -> None:
        """Close a connection when the client reads nothing for a while, or too little for longer."""
        if self._taking is None:
            self._taking_began = self._loop.time()
            self._await_taking()

    def _await_taking(self) -> None:
        self._left_to_take = self._real.get_write_buffer_size()
        due = min(self._loop.time() + self._all.silence_seconds, self._taking_began + self._taking_seconds)
        self._taking = self._loop.call_at(due, self._check_taking)

    def _check_taking(self) -> None:
        has_read = self._real.get_write_buffer_size() < self._left_to_take
        if has_read and self._loop.time() < self._taking_began + self._taking_seconds:
            self._await_taking()
        else:
            self._real.abort()

    def _stop_watching(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
            self._taking_seconds -= self._loop.time() - self._taking_began

    # Refusals.

    def _refuse(self, reason: ConnectionRefusal, message: str) -> None:
        """Answer with an error and close; without an answer if another was begun, or if too many linger."""
        if self._transport.is_closing():
            return
        self._all.note_refusal(reason)
        is_answered = self._is_answer_begun and (self._is_answer_due or self._body)
        # A counted connection stays counted until it is closed.
        if is_answered or (self._address is None and not self._all.enter_leaving()):
            self._real.abort()
            return
        self._tell_lost()
        self._real.write(self._refusal(reason, message))
        self._linger()

    def _linger(self) -> None:
        """Read on for a moment, but pass nothing on."""
        self._lingering = 0
        self._kept.clear()
        self._read_or_pause()
        if self._real.can_write_eof():
            self._real.write_eof()
        self._wait("end")

    def _refusal(self, reason: ConnectionRefusal, message: str) -> bytes:
        code = _REFUSALS[reason]
        status = HTTPStatus(code.value.status)
        retry_after = _RETRY_AFTER if code.value.is_temporary else None
        answer = error_response(RequestError(message, code=code, retry_after=retry_after))
        answer.headers["x-request-id"] = uuid.uuid4().hex
        answer.headers["connection"] = "close"
        lines = [b"%b: %b\r\n" % header for header in (*self._server_state.default_headers, *answer.raw_headers)]
        status_line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        return b"".join((status_line, *lines, b"\r\n", bytes(answer.body)))
