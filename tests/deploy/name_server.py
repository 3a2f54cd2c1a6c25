"""A DNS server for one name, as a container engine has one for its services."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def name_server(addresses: Sequence[str]) -> Iterator[str]:
    """Answer every question for an address with these, which may change; gives the server's own, as host:port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        host, port = endpoint.getsockname()
        stopped = threading.Event()

        def answer() -> None:
            while True:
                question, client = endpoint.recvfrom(4096)
                if stopped.is_set():
                    return
                endpoint.sendto(_answer(question, addresses), client)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"{host}:{port}"
        finally:
            stopped.set()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
                waker.sendto(b"stop", (host, port))
            thread.join()


def _answer(question: bytes, addresses: Sequence[str]) -> bytes:
    """RFC 1035: the question again, and an A record for each address."""
    end = question.index(b"\0", 12) + 5
    (kind,) = struct.unpack("!H", question[end - 4 : end - 2])
    known = list(addresses) if kind == 1 else []
    head = struct.pack("!2sHHHHH", question[:2], 0x8180, 1, len(known), 0, 0)
    records = (struct.pack("!HHHIH4s", 0xC00C, 1, 1, 1, 4, socket.inet_aton(address)) for address in known)
    return head + question[12:end] + b"".join(records)
