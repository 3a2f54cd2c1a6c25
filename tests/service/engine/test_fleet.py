"""Several engines behind one queue: the others go on when one dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.engine.devices import EngineDevice
from service.engine.fleet import Fleet
from service.engine.protocol import Load
from service.engine.supervisor import EngineStartError, ModelLoadError
from tests.asynchronous import asynchronous

PLACES = [EngineDevice("cuda:0", "cuda:0"), EngineDevice("cuda:1", "cuda:1")]


def load(model: str) -> Load:
    return Load(model, model, "", "float32", [1.0], None, None)


class Controlled:
    """A supervisor that the test makes ready, or fail."""

    engine = None

    def __init__(self, name: str, loads: list[Load]) -> None:
        self.name = name
        self.devices = [one.device for one in loads]
        self.fate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.models = {one.model for one in loads}
        self.refuses: str | None = None

    async def run(self) -> None:
        await self.fate

    async def stop(self) -> None:
        if not self.fate.done():
            self.fate.set_result(None)

    async def load(self, load: Load) -> None:
        if self.refuses:
            raise ModelLoadError(self.refuses)
        self.models.add(load.model)

    def unload(self, model: str) -> None:
        self.models.discard(model)


@asynccontextmanager
async def controlled() -> AsyncIterator[tuple[Fleet, Controlled, Controlled]]:
    """A fleet of two, and its supervisors."""
    made: list[Controlled] = []

    def make(name: str, loads: list[Load]) -> Controlled:
        made.append(Controlled(name, loads))
        return made[-1]

    fleet = Fleet(PLACES, [load("first")], make)
    yield fleet, *made


async def turns() -> None:
    """Let everything that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynchronous
async def test_a_device_that_was_fine_is_given_up_and_the_last_one_ends_the_service():
    async with controlled() as (fleet, first, second):
        running = asyncio.create_task(fleet.run())
        await turns()
        first.fate.set_exception(EngineStartError("fell off the bus", is_first=False))
        await turns()
        assert not running.done()
        await fleet.load(load("late"))
        assert (first.models, second.models) == ({"first"}, {"first", "late"})
        second.fate.set_exception(EngineStartError("so did this one", is_first=False))
        with pytest.raises(EngineStartError, match="so did this one"):
            await running


@asynchronous
async def test_a_first_start_that_fails_stops_the_others():
    async with controlled() as (fleet, first, second):
        running = asyncio.create_task(fleet.run())
        await turns()
        second.fate.set_exception(EngineStartError("no such checkpoint", is_first=True))
        with pytest.raises(EngineStartError, match="no such checkpoint"):
            await running
        assert first.fate.done()


@asynchronous
async def test_a_model_that_one_engine_refuses_is_kept_by_none():
    async with controlled() as (fleet, first, second):
        assert (first.devices, second.devices) == (["cuda:0"], ["cuda:1"])
        second.refuses = "out of memory"
        with pytest.raises(ModelLoadError, match="out of memory"):
            await fleet.load(load("large"))
        assert (first.models, second.models) == ({"first"}, {"first"})
