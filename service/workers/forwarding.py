"""Requests that a worker passes on to the main process: all but those for transcripts. They are ASGI in messages."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.gate import PATHS
from service.workers.protocol import Body, End, Ended, Forward, FromWorker, Gone, Head, Piece, Taken, ToWorker, Want

_CLOSE_SECONDS = 2.0


class Split:
    """ASGI application of a worker: answers requests for transcripts, and passes all others on.

    Args:
        spoken: answers requests for transcripts.
        forwarder: passes the others on.
    """

    def __init__(self, spoken: ASGIApp, forwarder: "Forwarder") -> None:
        self._spoken = spoken
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http" or scope["path"] in PATHS:
            await self._spoken(scope, receive, send)
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

    def take(self, message: Want | Head | Piece | Ended) -> None:
        """Take a message about a request."""
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
            except asyncio.CancelledError:  # the service ends, and the main process answers that
                self._send(End(call))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._relay(call, receive, send, receiving), _CLOSE_SECONDS)
        finally:
            self._send(Gone(call))
            for task in receiving:
                task.cancel()
            del self._answers[call]

    async def _relay(self, call: int, receive: Receive, send: Send, receiving: "set[asyncio.Task[None]]") -> None:
        while True:
            match await self._answers[call].get():
                case Want():
                    task = asyncio.create_task(self._pass_body(call, receive))
                    receiving.add(task)
                    task.add_done_callback(receiving.discard)
                case Head(status=status, headers=headers):
                    await send({"type": "http.response.start", "status": status, "headers": headers})
                case Piece(body=body, has_more=has_more):
                    await send({"type": "http.response.body", "body": body, "more_body": has_more})
                    self._send(Taken(call))
                case Ended():
                    return

    async def _pass_body(self, call: int, receive: Receive) -> None:
        message = await receive()
        if message["type"] == "http.disconnect":
            self._send(Gone(call))
        else:
            self._send(Body(call, message.get("body", b""), message.get("more_body", False)))


class Forwarded:
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
        self._taken = asyncio.Event()
        self._is_wanted = False
        self._is_gone = False

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
            self._send_to_worker(Ended(begun.call))

    def take(self, message: Body | Gone | Taken) -> None:
        """Take a message about it."""
        match message:
            case Body(body=body, has_more=has_more):
                self._received.append({"type": "http.request", "body": body, "more_body": has_more})
                self._is_wanted = False
                self._arrived.set()
            case Gone():
                self._is_gone = True
                self._arrived.set()
                self._taken.set()
            case Taken():
                self._taken.set()

    async def _receive(self) -> Message:
        while not self._received:
            if self._is_gone:
                return {"type": "http.disconnect"}
            self._arrived.clear()
            if not self._is_wanted:
                self._is_wanted = True
                self._send_to_worker(Want(self._begun.call))
            await self._arrived.wait()
        return self._received.popleft()

    async def _send(self, message: Message) -> None:
        call = self._begun.call
        if message["type"] == "http.response.start":
            self._send_to_worker(Head(call, message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body":
            self._taken.clear()
            self._send_to_worker(Piece(call, message.get("body", b""), message.get("more_body", False)))
            if not self._is_gone:
                await self._taken.wait()
