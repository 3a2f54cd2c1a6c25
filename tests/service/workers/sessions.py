"""A worker's session in the main process, with an engine that answers when a test says so, and without a worker."""

import os
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

from service.channel import Channel
from service.dispatch.recordings import Recordings
from service.http.core import LocalCore
from service.http.keys.access import Access
from service.keys import Key, KeyLimits
from service.shared_audio import Arena, shared_file
from service.supervision import Child
from service.workers.protocol import to_worker
from service.workers.session import Session
from tests.service.dispatch.fake_engine import READY, FakeEngine, dispatcher

LIMITS = KeyLimits(max_requests=1, requests_per_minute=2)


class Demand:
    """Models that are there."""

    def __init__(self, catalog):
        self.catalog = catalog

    async def get_or_load(self, name, resources):
        if name in self.catalog:
            resources.enter_context(self.catalog[name].use())
            return self.catalog[name]
        return None


@asynccontextmanager
async def session() -> AsyncIterator[SimpleNamespace]:
    """A session with one worker, an engine that answers when it is told to, and no file left at the end.

    `worker` is the worker's end of the channel, `sent` what came there, and `handle` what else gets that.
    """
    memory, (ours, theirs), sent, relayed = shared_file(), socket.socketpair(), [], []
    with ThreadPoolExecutor(1) as threads:
        dispatching, engine = dispatcher(), FakeEngine()
        dispatching.engine_ready(engine, READY)
        core = LocalCore(
            *(dispatching, Recordings(dispatching, threads), Demand(dispatching.catalog)),
            None,  # what says whether it is ready
            access=Access([Key("alice", "0" * 64, LIMITS)], is_open=False),
            jobs=None,
            exposition=None,
        )
        on = SimpleNamespace(sent=sent, relayed=relayed, core=core, engine=engine, dispatcher=dispatching)
        on.handle, on.arena = lambda message: None, Arena(os.dup(memory))

        def hear(message) -> None:
            sent.append(message)
            on.handle(message)

        on.worker = Channel(theirs, to_worker, hear)
        on.session = Session(core, relayed.append, Child(None, ours, memory))
        yield on
        if not on.session.channel.lost.done():
            await on.session.close()
        await on.worker.lost
        on.arena.close()
    links = [one for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    assert not [one for one in links if "memfd:recording" in str(one.readlink())]
