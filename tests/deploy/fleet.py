"""Replicas behind HAProxy with compose's own configuration file, on addresses of this machine."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.deploy.name_server import name_server
from tests.service.serving import ServerProcess, metric, steno_serve, wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIGURATION = ROOT / "deploy" / "compose" / "haproxy.cfg"


def free_port(host: str = "127.0.0.1") -> int:
    """A free port."""
    with socket.create_server((host, 0)) as free:
        return free.getsockname()[1]


@dataclass
class Fleet:
    """A balancer and the replicas that it finds."""

    folder: Path
    url: str
    metrics_url: str
    port: int
    running: dict[str, tuple[contextlib.ExitStack, ServerProcess]] = field(default_factory=dict)

    def start(self, address: str, **environment: str) -> None:
        """Start a replica and wait until the balancer sends it work."""
        stack = contextlib.ExitStack()
        log = self.folder / f"{address}-{len(list(self.folder.glob('*.log')))}.log"
        flags = ("--host", address, "--port", str(self.port))
        served = stack.enter_context(steno_serve(log, *flags, OMP_NUM_THREADS="1", **environment))
        self.running[address] = stack, served
        self.wait_for_replicas(len(self.running))

    def replica(self, address: str) -> ServerProcess:
        """The process of a replica."""
        return self.running[address][1]

    def kill(self, address: str) -> None:
        """End a replica as a power cut would."""
        stack, served = self.running.pop(address)
        served.process.kill()
        served.process.wait()
        stack.close()

    def stop(self, address: str) -> int:
        """End a replica as an operator would; returns its exit status."""
        stack, served = self.running.pop(address)
        served.process.send_signal(signal.SIGTERM)
        status = served.process.wait(120)
        stack.close()
        return status

    def balancer_metric(self, name: str) -> float:
        """The sum of a metric of HAProxy's own."""
        return metric(httpx.get(self.metrics_url, trust_env=False).text, name)

    def wait_for_replicas(self, number: int) -> None:
        """Wait until the balancer sends work to so many replicas."""

        def is_so() -> bool:
            with contextlib.suppress(httpx.ConnectError):  # before the balancer listens
                return self.balancer_metric('haproxy_backend_active_servers{proxy="steno"') == number
            return False

        wait_for(is_so)


@contextlib.contextmanager
def balancing(folder: Path, addresses: tuple[str, ...], port: int, balance: str = "leastconn") -> Iterator[Fleet]:
    """Run a balancer in front of replicas that listen, or will listen, on these addresses."""
    api, metrics = free_port(), free_port()
    with name_server(addresses) as names, (folder / "haproxy").open("w") as log:
        settings = {
            "NAMESERVER": names,
            "LISTEN": f"127.0.0.1:{api}",
            "LISTEN_METRICS": f"127.0.0.1:{metrics}",
            "REPLICAS_PORT": str(port),
            "BALANCE": balance,
        }
        balancer = subprocess.Popen(
            ["haproxy", "-f", str(CONFIGURATION)], env=os.environ | settings, stdout=log, stderr=log
        )
        try:
            yield Fleet(folder, f"http://127.0.0.1:{api}", f"http://127.0.0.1:{metrics}/metrics", port)
        finally:
            balancer.terminate()
            balancer.wait()


@contextlib.contextmanager
def fleet(folder: Path, *addresses: str, balance: str = "leastconn", **environment: str) -> Iterator[Fleet]:
    """Run replicas on these addresses (of 127.0.0.0/8), behind a balancer, until the block ends."""
    with balancing(folder, addresses, free_port(addresses[0]), balance) as served:
        try:
            for address in addresses:
                served.start(address, **environment)
            yield served
        finally:
            for stack, _ in served.running.values():
                stack.close()
