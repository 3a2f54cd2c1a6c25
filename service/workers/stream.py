"""Frames of MessagePack over a stream socket, on the event loop: four bytes of length, then one message.

The messages of one turn of the loop are written together, because a system call costs more than a message.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from service.workers.protocol import FromWorker, Message, ToWorker

log = logging.getLogger("steno.workers")

_LENGTH = struct.Struct(">I")
_MAX_FRAME_BYTES = 256 << 20  # far above any transcript; a larger length means the stream is out of step

M = TypeVar("M")
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_encoder = msgspec.msgpack.Encoder()


class Stream(asyncio.Protocol, Generic[M]):
    """One end of the channel.

    Args:
        decoder: of the messages that come.

    Attributes:
        lost: done when the connection has ended.
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

    def send(self, message: Message) -> None:
        """Queue a message. If it cannot be delivered, the stream is lost."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        body = _encoder.encode(message)
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
        at, have = 0, len(received)
        try:
            with memoryview(received) as view:
                while have - at >= _LENGTH.size:
                    (length,) = _LENGTH.unpack_from(view, at)
                    if length > _MAX_FRAME_BYTES:
                        self._give_up()
                        return
                    if have - at - _LENGTH.size < length:
                        break
                    at += _LENGTH.size
                    with view[at : at + length] as body:
                        message = self._decode(body)
                    at += length
                    self._on_message(message)
        except msgspec.DecodeError:
            self._give_up()
            return
        del received[:at]

    def _give_up(self) -> None:
        """Close a stream that is out of step."""
        log.error("a message of another process cannot be read")
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))
