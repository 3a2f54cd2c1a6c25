"""Requests that a worker passes on to the main process: all but those for transcripts, by HTTP over a pair of sockets.

The main process gets its end of the pair as a descriptor, so it listens nowhere. h11 speaks the worker's side: an
answer is passed on when it comes, also before the request's body has ended.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response
from service.http.wire.gate import PATHS

_CLOSE_SECONDS = 2.0
_PIECE_BYTES = 1 << 16
# They are about one connection, and the next one is another.
_HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"}
# Who asks is what the worker knows, not what a client writes.
_NOT_ASKED = _HOP_BY_HOP | {b"x-forwarded-for", b"x-forwarded-proto"}
_NOT_ANSWERED = _HOP_BY_HOP | {b"transfer-encoding"}  # the pieces of an answer are framed anew


class WorkerApp:
    """ASGI application of a worker: answers requests for transcripts, and hands over a connection for any other."""

    def __init__(self, transcription: ASGIApp, hand_over: Callable[[int], None]) -> None:
        self._transcription = transcription
        self._hand_over = hand_over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http" or scope["path"] in PATHS:
            await self._transcription(scope, receive, send)
            return
        connection = h11.Connection(h11.CLIENT)
        try:
            head = connection.send(_request(scope))
        except h11.LocalProtocolError as error:
            refusal = RequestError(f"The request is not valid: {error}.", code=ErrorCode.INVALID_REQUEST)
            await error_response(refusal)(scope, receive, send)
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self._hand_over(theirs.fileno())
        reader, writer = await asyncio.open_connection(sock=ours)
        assert head is not None
        writer.write(head)
        answering = asyncio.create_task(_answer(connection, reader, writer, receive, send))
        try:
            await asyncio.shield(answering)
        except asyncio.CancelledError:  # the service ends; the main process, which ends too, sends a last answer
            await asyncio.wait({answering}, timeout=_CLOSE_SECONDS)
        finally:
            answering.cancel()
            await asyncio.wait({answering})
            writer.close()


def _request(scope: Scope) -> h11.Request:
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_ASKED]
    if scope["client"]:
        headers.append((b"x-forwarded-for", scope["client"][0].encode()))
    if not any(name == b"host" for name, _ in headers):
        headers.append((b"host", b""))
    return h11.Request(method=scope["method"], target=target or b"/", headers=headers)


async def _answer(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    receive: Receive,
    send: Send,
) -> None:
    """Relay a request whose head was sent, to its end or until the client leaves.

    Raises:
        h11.RemoteProtocolError: if the main process gives it up.
    """
    may_send_body = asyncio.Event()
    if not connection.client_is_waiting_for_100_continue:
        may_send_body.set()

    async def send_body() -> None:
        """Send the body while the main process reads it, and close the connection when the client leaves."""
        await may_send_body.wait()
        with contextlib.suppress(ConnectionError):
            while (message := await receive())["type"] == "http.request":
                piece = connection.send(h11.Data(message.get("body", b""))) or b""
                if not message.get("more_body", False):
                    piece += connection.send(h11.EndOfMessage()) or b""
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()

    sending = asyncio.create_task(send_body())
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            match event:
                case h11.NEED_DATA:
                    connection.receive_data(await reader.read(_PIECE_BYTES))
                case h11.InformationalResponse():
                    may_send_body.set()
                case h11.Response(status_code=status, headers=fields):
                    headers = [field for field in fields if field[0] not in _NOT_ANSWERED]
                    await send({"type": "http.response.start", "status": status, "headers": headers})
                case h11.Data(data=data):
                    await send({"type": "http.response.body", "body": bytes(data), "more_body": True})
        await send({"type": "http.response.body"})
    except h11.RemoteProtocolError:
        if not sending.done():  # as it is once the client has left
            raise
    finally:
        sending.cancel()
        await asyncio.wait({sending})


class RelayServer:
    """The main process's end: HTTP on connections that workers hand over, with heads and bodies that are bounded."""

    def __init__(self, app: ASGIApp) -> None:
        # The worker, which alone writes here, says who asks.
        self._config = uvicorn.Config(
            app, ws="none", log_config=None, forwarded_allow_ips="*", server_header=False, date_header=False
        )
        self._config.load()
        self._state = ServerState()
        self._opening: set[asyncio.Task[object]] = set()

    def take(self, descriptor: int) -> None:
        """Answer the request on a connection."""
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        protocol = HttpToolsProtocol(config=self._config, server_state=self._state, app_state={})
        opening = asyncio.create_task(asyncio.get_running_loop().create_connection(lambda: protocol, sock=connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def cancel(self) -> None:
        """Cancel what is under way; it still answers with an error."""
        for task in self._state.tasks:
            task.cancel()
