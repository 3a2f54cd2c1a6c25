"""Messages between processes: frames of MessagePack over a stream socket, four bytes of length and then one message.

`Channel` is an end on the event loop, `BlockingChannel` one for threads. Audio is not sent; see `service.shared_audio`.
"""

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, cast

import msgspec

log = logging.getLogger("steno.channel")

_LENGTH = struct.Struct(">I")
_MAX_FRAME_BYTES = 256 << 20  # far above any transcript; a larger length means the stream is out of step

M = TypeVar("M")
_encode = msgspec.msgpack.Encoder().encode


def _body_length(received: "bytes | bytearray", at: int = 0) -> int:
    (length,) = _LENGTH.unpack_from(received, at)
    if length > _MAX_FRAME_BYTES:
        raise msgspec.DecodeError(f"a frame of {length} bytes: the stream is out of step")
    return int(length)


class Channel(asyncio.Protocol, Generic[M]):
    """One end, on the event loop.

    The messages of one turn of the loop are written together, because a system call costs more than a message.

    Args:
        decoder: of the messages that come.

    Attributes:
        lost: done when the connection has ended, or a message cannot be read.
    """

    def __init__(self, decoder: "msgspec.msgpack.Decoder[M]") -> None:
        self._loop = asyncio.get_running_loop()
        self._decode = decoder.decode
        self._on_message: Callable[[M], None]
        self._received = bytearray()
        self._unsent: list[bytes] = []
        self._transport: asyncio.WriteTransport | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()

    async def open(self, connection: socket.socket, on_message: Callable[[M], None]) -> None:
        """Take over a connected stream socket; `on_message` gets each message that comes."""
        self._on_message = on_message
        connection.setblocking(False)
        await self._loop.create_connection(lambda: self, sock=connection)

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message. If it cannot be delivered, the channel is lost."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        body = _encode(message)
        self._unsent += (_LENGTH.pack(len(body)), body)

    def close(self) -> None:
        """Send what is queued, and close."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Say that the connection has ended."""
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Pass on each complete message."""
        received = self._received
        received += data
        at = 0
        try:
            while len(received) - at >= _LENGTH.size:
                end = at + _LENGTH.size + _body_length(received, at)
                if end > len(received):
                    break
                with memoryview(received) as view, view[at + _LENGTH.size : end] as body:
                    message = self._decode(body)
                at = end
                self._on_message(message)
        except msgspec.DecodeError as error:
            log.error("a message of another process cannot be read", extra={"reason": str(error)})  # noqa: TRY400
            if self._transport is not None:
                self._transport.abort()
        del received[:at]

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))


class BlockingChannel(Generic[M]):
    """One end that blocks; any thread may send.

    Args:
        connection: a connected stream socket.
        decoder: of the messages that come.
    """

    def __init__(self, connection: socket.socket, decoder: "msgspec.msgpack.Decoder[M]") -> None:
        connection.setblocking(True)
        self._connection = connection
        self._decode = decoder.decode
        self._stream = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Send one message.

        Raises:
            OSError: if the other end is gone.
        """
        body = _encode(message)
        with self._sending:
            self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def messages(self) -> Iterator[M]:
        """Yield the messages that come until the other end closes the socket."""
        while len(header := self._stream.read(_LENGTH.size)) == _LENGTH.size:
            yield self._decode(self._stream.read(_body_length(header)))
