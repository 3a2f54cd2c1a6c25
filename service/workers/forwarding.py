"""Requests that a worker passes on to the main process: all but those for transcripts. They are ASGI in messages."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.gate import PATHS
from service.workers.protocol import (
    BodyPiece,
    Disconnected,
    End,
    Forward,
    ForwardEnded,
    FromWorker,
    PieceWritten,
    ResponsePiece,
    ResponseStart,
    ToWorker,
    WantBody,
)

_CLOSE_SECONDS = 2.0


class WorkerApp:
    """ASGI application of a worker: answers requests for transcripts, and passes all others on.

    Args:
        transcription: answers requests for transcripts.
        forwarder: passes the others on.
    """

    def __init__(self, transcription: ASGIApp, forwarder: "Forwarder") -> None:
        self._transcription = transcription
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http" or scope["path"] in PATHS:
            await self._transcription(scope, receive, send)
        else:
            await self._forwarder.forward(scope, receive, send)


class Forwarder:
    """The worker's end.

    Args:
        send: sends a message to the main process.
        number: returns a new number for a request.
    """

    def __init__(self, send: Callable[[FromWorker], None], number: Callable[[], int]) -> None:
        self._send = send
        self._number = number
        self._answers: dict[int, asyncio.Queue[ToWorker]] = {}

    def handle(self, message: WantBody | ResponseStart | ResponsePiece | ForwardEnded) -> None:
        """Handle a message about a request."""
        if answer := self._answers.get(message.call):
            answer.put_nowait(message)

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and its answer back."""
        call = self._number()
        self._answers[call] = asyncio.Queue()
        self._send(
            Forward(
                *(call, scope["http_version"], scope["method"], scope["scheme"], scope["path"], scope["raw_path"]),
                *(scope["query_string"], list(scope["headers"]), scope["client"], scope["server"]),
            )
        )
        receiving: set[asyncio.Task[None]] = set()
        try:
            try:
                await self._relay(call, receive, send, receiving)
            except asyncio.CancelledError:  # the service ends: after `End`, the main process sends a last answer
                self._send(End(call))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._relay(call, receive, send, receiving), _CLOSE_SECONDS)
        finally:
            self._send(Disconnected(call))
            for task in receiving:
                task.cancel()
            del self._answers[call]

    async def _relay(self, call: int, receive: Receive, send: Send, receiving: "set[asyncio.Task[None]]") -> None:
        while True:
            match await self._answers[call].get():
                case WantBody():
                    task = asyncio.create_task(self._pass_body(call, receive))
                    receiving.add(task)
                    task.add_done_callback(receiving.discard)
                case ResponseStart(status=status, headers=headers):
                    await send({"type": "http.response.start", "status": status, "headers": headers})
                case ResponsePiece(body=body, has_more=has_more):
                    await send({"type": "http.response.body", "body": body, "more_body": has_more})
                    self._send(PieceWritten(call))
                case ForwardEnded():
                    return

    async def _pass_body(self, call: int, receive: Receive) -> None:
        message = await receive()
        if message["type"] == "http.disconnect":
            self._send(Disconnected(call))
        else:
            self._send(BodyPiece(call, message.get("body", b""), message.get("more_body", False)))


class ForwardedRequest:
    """The main process's end of one request.

    Args:
        begun: the request.
        send: sends a message to the worker.
    """

    def __init__(self, begun: Forward, send: Callable[[ToWorker], None]) -> None:
        self._begun = begun
        self._send_to_worker = send
        self._received: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._piece_written = asyncio.Event()
        self._is_body_wanted = False
        self._is_disconnected = False

    async def run(self, app: ASGIApp) -> None:
        """Answer it."""
        begun = self._begun
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": begun.http_version,
            "method": begun.method,
            "scheme": begun.scheme,
            "path": begun.path,
            "raw_path": begun.raw_path,
            "query_string": begun.query_string,
            "root_path": "",
            "headers": begun.headers,
            "client": begun.client,
            "server": begun.server,
            "state": {},
        }
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._send_to_worker(ForwardEnded(begun.call))

    def handle(self, message: BodyPiece | Disconnected | PieceWritten) -> None:
        """Handle a message about it."""
        match message:
            case BodyPiece(body=body, has_more=has_more):
                self._received.append({"type": "http.request", "body": body, "more_body": has_more})
                self._is_body_wanted = False
                self._arrived.set()
            case Disconnected():
                self._is_disconnected = True
                self._arrived.set()
                self._piece_written.set()
            case PieceWritten():
                self._piece_written.set()

    async def _receive(self) -> Message:
        while not self._received:
            if self._is_disconnected:
                return {"type": "http.disconnect"}
            self._arrived.clear()
            if not self._is_body_wanted:
                self._is_body_wanted = True
                self._send_to_worker(WantBody(self._begun.call))
            await self._arrived.wait()
        return self._received.popleft()

    async def _send(self, message: Message) -> None:
        call = self._begun.call
        if message["type"] == "http.response.start":
            self._send_to_worker(ResponseStart(call, message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body":
            self._piece_written.clear()
            self._send_to_worker(ResponsePiece(call, message.get("body", b""), message.get("more_body", False)))
            if not self._is_disconnected:
                await self._piece_written.wait()
