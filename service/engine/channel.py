"""Frames of MessagePack over a stream socket: four bytes of length, then one message."""

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator

import msgspec

from service.engine.protocol import FromEngine, ToEngine

log = logging.getLogger("steno.supervisor")

_LENGTH = struct.Struct(">I")
_MAX_FRAME_BYTES = 256 << 20  # far above any transcript; a larger length means the stream is out of step

_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def _frame(message: ToEngine | FromEngine) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def _body_length(header: bytes) -> int:
    (length,) = _LENGTH.unpack(header)
    if length > _MAX_FRAME_BYTES:
        raise msgspec.DecodeError(f"a frame of {length} bytes: the stream is out of step")
    return int(length)


class FrontChannel:
    """The front's end of the channel, on the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, connection: socket.socket) -> "FrontChannel":
        """Take over a connected stream socket."""
        connection.setblocking(False)
        return cls(*await asyncio.open_connection(sock=connection))

    def send(self, message: ToEngine) -> None:
        """Queue a message. If it cannot be delivered, `messages` ends."""
        if not self._writer.is_closing():
            self._writer.write(_frame(message))

    async def messages(self) -> AsyncIterator[FromEngine]:
        """Yield the engine's messages until it closes the socket, or one cannot be read."""
        try:
            while True:
                length = _body_length(await self._reader.readexactly(_LENGTH.size))
                yield _from_engine.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except msgspec.DecodeError as error:
            log.error("a message of an engine cannot be read", extra={"reason": str(error)})  # noqa: TRY400

    def close(self) -> None:
        """Close the socket; the engine exits at the end of its stream."""
        self._writer.close()


class EngineChannel:
    """The engine's end of the channel, blocking; any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: FromEngine) -> None:
        """Send one message.

        Raises:
            OSError: if the front is gone.
        """
        with self._sending:
            self._connection.sendall(_frame(message))

    def messages(self) -> Iterator[ToEngine]:
        """Yield the front's messages until it closes the socket."""
        while len(header := self._stream.read(_LENGTH.size)) == _LENGTH.size:
            yield _to_engine.decode(self._stream.read(_body_length(header)))
