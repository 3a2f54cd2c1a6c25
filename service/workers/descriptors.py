"""Open files and sockets on their way from a worker to the main process, each with a number."""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

_NUMBER = struct.Struct(">Q")


class DescriptorSender:
    """The worker's end. Nothing waits: what has no room in the socket yet is sent when it has.

    Args:
        connection: a connected stream socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._unsent: deque[tuple[int, int]] = deque()

    def send(self, number: int, descriptor: int) -> None:
        """Send a copy of a descriptor.

        Raises:
            OSError: if it cannot be copied.
        """
        self._unsent.append((number, os.dup(descriptor)))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsent:
            number, descriptor = self._unsent[0]
            try:
                socket.send_fds(self._connection, [_NUMBER.pack(number)], [descriptor])
            except BlockingIOError:
                loop.add_writer(self._connection, self._flush)
                return
            except OSError:  # the main process is gone, and this one will be at once
                pass
            self._unsent.popleft()
            os.close(descriptor)
        loop.remove_writer(self._connection)


class DescriptorReceiver:
    """The main process's end.

    Args:
        connection: a connected stream socket.
        take: gets each number with its descriptor, and owns it; None if this process may have no more.
    """

    def __init__(self, connection: socket.socket, take: Callable[[int, int | None], None]) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._take = take
        asyncio.get_running_loop().add_reader(connection, self._receive)

    def close(self) -> None:
        """Receive no more."""
        asyncio.get_running_loop().remove_reader(self._connection)
        self._connection.close()

    def _receive(self) -> None:
        try:
            number, descriptors, _, _ = socket.recv_fds(self._connection, _NUMBER.size, 1)
        except BlockingIOError:
            return
        except OSError:
            number, descriptors = b"", []
        if number:
            self._take(_NUMBER.unpack(number)[0], descriptors[0] if descriptors else None)
        else:
            asyncio.get_running_loop().remove_reader(self._connection)
