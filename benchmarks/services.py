"""Services that benchmarks start: a free port, and waiting until they answer."""

import socket
import time

import httpx

_START_SECONDS = 120.0


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that no server listens on now."""
    with socket.create_server((host, 0)) as free:
        port: int = free.getsockname()[1]
    return port


def wait_for(url: str, text: str = "", seconds: float = _START_SECONDS) -> None:
    """Wait until a service answers a GET with success, and with ``text`` in its body.

    Raises:
        SystemExit: if it does not within some seconds, two minutes if none are given.
    """
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            answer = httpx.get(url, trust_env=False)
            if answer.is_success and text in answer.text:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"{url} did not answer in {seconds:.0f} s")
