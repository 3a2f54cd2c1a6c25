"""What tests of several HTTP processes share: the workers of a service, and requests on connections of their own."""

import contextlib
import socket

import httpx
import numpy as np

from tests.service.serving import PATIENCE, ThreadedServer, post_bytes, wait_for, wav


def wait_until_listening(served: ThreadedServer, processes: int = 2) -> None:
    wait_for(lambda: served.metric("steno_http_processes") == processes)


def workers(served: ThreadedServer) -> list[int]:
    """The process ids of the workers."""
    return [session.process.pid for session in served.server.workers.sessions.values()]


def reconnect(served: ThreadedServer) -> None:
    """Give the client a new connection, because that of before may be with a worker that was killed."""
    served.client.close()
    served.client = httpx.Client(base_url=served.client.base_url, timeout=PATIENCE, trust_env=False)


def posted(port: int, samples: np.ndarray) -> socket.socket:
    """A connection of its own, on which a recording was sent."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall(post_bytes(port, wav(samples)))
    return connection


def answer(connection: socket.socket) -> bytes:
    """The answer on a connection; nothing if it was reset."""
    with connection, contextlib.suppress(ConnectionError):
        received = b""
        while b"}}" not in received and (piece := connection.recv(1 << 16)):
            received += piece
        return received
    return b""
