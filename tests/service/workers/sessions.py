"""A worker's session in the main process, with an engine that answers when a test says so, and without a worker."""

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from service.dispatch.recordings import Recordings
from service.http.core import LocalCore
from service.http.keys.access import Access
from service.keys import Key, KeyLimits
from service.shared_audio import Arena, shared_file
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


@contextmanager
def session() -> Iterator[SimpleNamespace]:
    """A session with one worker, an engine that answers when it is told to, and no file left at the end.

    `answer` gets what is sent to the worker; `files` are the descriptors that come with its messages, None for one for
    which there is no room.
    """
    memory, sent = shared_file(), []
    try:
        with ThreadPoolExecutor(1) as threads:
            dispatching, engine = dispatcher(), FakeEngine()
            dispatching.engine_ready(engine, READY)
            core = LocalCore(
                *(dispatching, Recordings(dispatching, threads), Demand(dispatching.catalog)),
                *(None, None),  # what loads models, and says whether it is ready
                access=Access([Key("alice", "0" * 64, LIMITS)], is_open=False),
                admin_access=Access([], is_open=False),
                jobs=None,
                exposition=None,
            )
            files, relayed = deque(), []
            on = SimpleNamespace(sent=sent, core=core, engine=engine, dispatcher=dispatching, arena=Arena(memory))
            on.answer, on.files, on.relayed = sent.append, files, relayed
            on.session = Session(core, relayed.append, memory, lambda message: on.answer(message), files.popleft)  # noqa: PLW0108  # tests set it
            yield on
    finally:
        os.close(memory)
    links = [one for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    assert not [one for one in links if "memfd:recording" in str(one.readlink())]


def run(scenario) -> None:
    async def with_session() -> None:
        with session() as on:
            await scenario(on)

    asyncio.run(with_session())
