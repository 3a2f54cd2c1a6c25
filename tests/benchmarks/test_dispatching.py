"""The benchmark of the dispatcher starts an engine, or says why there is none."""

import asyncio

import pytest

from benchmarks.dispatching import _until_ready
from service.engine.supervisor import STUB_ENGINE, EngineStartError
from service.server import Server
from service.settings import Settings


def test_it_does_not_wait_for_an_engine_that_cannot_start():
    async def main() -> None:
        server = Server(Settings(model="unreadable", port=0), STUB_ENGINE)
        try:
            await _until_ready(server, asyncio.create_task(server.fleet.run()))
        finally:
            server._listener.close()

    with pytest.raises(EngineStartError, match="not a checkpoint"):
        asyncio.run(main())
