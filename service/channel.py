"""Messages between processes: frames of MessagePack over a stream socket, four bytes of length and then one message.

`Channel` is an end on the event loop, `BlockingChannel` one for threads. Audio is not sent; see `service.shared_audio`.
"""

import asyncio
import logging
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

log = logging.getLogger("steno.channel")

_LENGTH = struct.Struct(">I")
_MAX_FRAME_BYTES = 256 << 20  # far above any transcript; a larger length means the stream is out of step
_PIECE_BYTES = 1 << 16
_DESCRIPTOR_BYTES = socket.CMSG_SPACE(struct.calcsize("i"))

M = TypeVar("M")
_encode = msgspec.msgpack.Encoder().encode


def _frame(message: msgspec.Struct) -> bytes:
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def _body_length(received: "bytes | bytearray", at: int = 0) -> int:
    (length,) = _LENGTH.unpack_from(received, at)
    if length > _MAX_FRAME_BYTES:
        raise msgspec.DecodeError(f"a frame of {length} bytes: the stream is out of step")
    return int(length)


class Channel(Generic[M]):
    """One end, on the event loop.

    The messages of one turn of the loop are written together, because a system call costs more than a message. A
    message may carry a descriptor, as no transport of asyncio can.
    """

    def __init__(
        self, connection: socket.socket, decoder: "msgspec.msgpack.Decoder[M]", on_message: Callable[[M], None]
    ) -> None:
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._decode = decoder.decode
        self._on_message = on_message
        self._received = bytearray()
        self._descriptors: deque[int | None] = deque()
        self._unsent: deque[tuple[bytearray, list[int]]] = deque()  # a descriptor is sent with the bytes behind it
        self._is_closing = self._is_closed = False
        # Done when the connection has ended, or a message cannot be read or handled.
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(connection, self._receive)

    def send(self, message: msgspec.Struct, descriptor: int | None = None) -> None:
        """Queue a message, with a copy of a descriptor. If it cannot be delivered, the channel is lost.

        Raises:
            OSError: if the descriptor cannot be copied.
        """
        if self._is_closing:
            return
        frame = _frame(message)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        if descriptor is not None or not self._unsent:
            self._unsent.append((bytearray(), [] if descriptor is None else [os.dup(descriptor)]))
        self._unsent[-1][0].extend(frame)

    def take_descriptor(self) -> int | None:
        """Return the descriptor that came with this message, which is the caller's; None if there was no room for it.

        Each message with a descriptor must be asked for it, in order.
        """
        return self._descriptors.popleft() if self._descriptors else None

    def close(self) -> None:
        """Send what is queued, and close."""
        self._is_closing = True
        self._flush()

    def _receive(self) -> None:
        try:
            data, with_it, flags, _ = self._connection.recvmsg(_PIECE_BYTES, _DESCRIPTOR_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, with_it, flags = b"", [], 0
        for _, _, descriptor in with_it:
            self._descriptors.extend(struct.unpack("i", descriptor))
        if flags & socket.MSG_CTRUNC:  # this process may have no more
            self._descriptors.append(None)
        if not data:
            self._end()
            return
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
            self._end()
        except Exception:  # a bug; what this process knows of the other may be wrong now
            log.exception("a message of another process was not handled")
            self._end()
        del received[:at]

    def _flush(self) -> None:
        """Send what is queued, the rest of it when the socket takes more."""
        if self._is_closed:
            return
        self._loop.remove_writer(self._connection)
        try:
            while self._unsent:
                data, descriptors = self._unsent[0]
                if descriptors:
                    sent = socket.send_fds(self._connection, [data], descriptors)
                else:
                    sent = self._connection.send(data)
                del data[:sent]
                while descriptors:
                    os.close(descriptors.pop())
                if not data:
                    self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._connection, self._flush)
            return
        except OSError:
            self._is_closing = True
        if self._is_closing:
            self._end()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closing = self._is_closed = True
        self._loop.remove_reader(self._connection)
        self._loop.remove_writer(self._connection)
        self._connection.close()
        for descriptor in (*self._descriptors, *(one for _, unsent in self._unsent for one in unsent)):
            if descriptor is not None:
                os.close(descriptor)
        self._descriptors.clear()
        self._unsent.clear()
        if not self.lost.done():  # who waits for it may be cancelled
            self.lost.set_result(None)


class BlockingChannel(Generic[M]):
    """One end that blocks; any thread may send."""

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
        frame = _frame(message)
        with self._sending:
            self._connection.sendall(frame)

    def messages(self) -> Iterator[M]:
        """Yield the messages that come until the other end closes the socket."""
        while len(header := self._stream.read(_LENGTH.size)) == _LENGTH.size:
            yield self._decode(self._stream.read(_body_length(header)))
