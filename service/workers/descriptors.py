"""Open files and sockets on their way from a worker to the main process, each with a number."""

import asyncio
import socket
import struct
from collections.abc import Callable

_NUMBER = struct.Struct(">Q")


def send_descriptor(connection: socket.socket, number: int, descriptor: int) -> None:
    """Send a copy of a descriptor. It waits only while hundreds are under way, which the main process takes at once.

    Raises:
        OSError: if it cannot be sent.
    """
    socket.send_fds(connection, [_NUMBER.pack(number)], [descriptor])


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
