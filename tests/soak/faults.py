"""Faults that are caused in a service while clients are at work; each lasts some seconds at most."""

import asyncio
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from tests.soak.account import Account, Fault
from tests.soak.processes import children, decoders, descriptors, engine, workers

_STOPPED_SECONDS = 2.0
_STORM = 100
# In a row; where a machine is slow to start engines, five would end the service, as they should.
_MOST_STARTS_BROKEN = 3
_BEGUN = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999\r\n\r\nabc"


@dataclass
class Faults:
    """Does them, one after the other."""

    pid: int  # of the service
    url: str  # of the service
    account: Account  # told of each
    every_seconds: float  # from one to the next

    async def run(self, seed: str, until: float, say: Callable[[str], None]) -> None:
        """Do what the seed draws, until a time."""
        chance = random.Random(seed)
        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "engine killed": self._kill_engine,
            "engine stopped for ever": self._stop_engine,
            "engine stopped for a while": self._pause_engine,
            "decoders killed": self._kill_decoders,
            "front stopped for a while": self._pause_front,
            "descriptors used up": self._use_up_descriptors,
            "storm of clients that leave": self._storm,
            "storm of heads without end": self._heads,
        }
        if workers(self.pid):
            kinds |= {"worker killed": self._kill_worker, "worker stopped for a while": self._pause_worker}
        starts_broken = 0
        while time.monotonic() + self.every_seconds < until:
            await asyncio.sleep(self.every_seconds)
            kind = chance.choice(list(kinds))
            if kind.startswith("engine"):
                starts_broken = 0 if await self._is_ready() else starts_broken + 1
                if starts_broken > _MOST_STARTS_BROKEN:
                    say(f"not {kind}: the engine starts")
                    continue
            say(kind)
            fault = Fault(kind, time.monotonic(), float("inf"))
            self.account.faults.append(fault)
            await kinds[kind]()
            self.account.faults[-1] = Fault(kind, fault.began, time.monotonic())

    async def _is_ready(self) -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
                return (await client.get(f"{self.url}/readyz")).is_success
        except httpx.TransportError:
            return False

    async def _kill_engine(self) -> None:
        for pid in engine(self.pid):
            os.kill(pid, signal.SIGKILL)

    async def _stop_engine(self) -> None:
        for pid in engine(self.pid):
            os.kill(pid, signal.SIGSTOP)

    async def _pause_engine(self) -> None:
        await self._pause(engine(self.pid))

    async def _pause_front(self) -> None:
        await self._pause([self.pid])

    async def _pause(self, pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(_STOPPED_SECONDS)
        for pid in pids:
            if pid == self.pid or pid in children(self.pid):
                os.kill(pid, signal.SIGCONT)

    async def _kill_worker(self) -> None:
        for pid in workers(self.pid)[:1]:
            os.kill(pid, signal.SIGKILL)

    async def _pause_worker(self) -> None:
        await self._pause(workers(self.pid)[:1])

    async def _kill_decoders(self) -> None:
        for pid in decoders(self.pid):
            os.kill(pid, signal.SIGKILL)

    async def _use_up_descriptors(self) -> None:
        front = (self.pid, *workers(self.pid))
        usual = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        for pid in front:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid), usual[1]))
        await asyncio.sleep(_STOPPED_SECONDS)
        for pid in front:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)

    async def _storm(self) -> None:
        await self._connections(_BEGUN, 0.0)

    async def _heads(self) -> None:
        await self._connections(b"GET /healthz HTTP/1.1\r\nx-end", _STOPPED_SECONDS)

    async def _connections(self, sent: bytes, seconds: float) -> None:
        where = urlsplit(self.url)
        opened = []
        for _ in range(_STORM):
            try:
                connection = socket.create_connection((where.hostname or "", where.port or 80), 5.0)
            except OSError:
                continue
            connection.sendall(sent)
            opened.append(connection)
            await asyncio.sleep(0)
        await asyncio.sleep(seconds)
        for connection in opened:
            connection.close()
