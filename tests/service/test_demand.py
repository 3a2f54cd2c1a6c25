"""Models are loaded when they are asked for, and unloaded when they are not."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest

from service.demand import Demand, DemandError
from service.dispatch.catalog import Catalog, ServedModel
from service.engine.supervisor import EngineGoneError, ModelLoadError
from service.loadable import Loadable
from tests.asynchronous import asynchronous
from tests.service.dispatch.fake_engine import READY
from tests.service.dispatch.virtual_time import Clock


class FakeResidency:
    """Loads models when the test says so."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.loads: list[str] = []
        self.evicted: list[tuple[str, str]] = []
        self.may_load = asyncio.Event()
        self.failure: Exception | None = None

    async def until_gone(self, model: str) -> None:
        pass

    async def load(self, model: str, checkpoint: str) -> ServedModel:
        self.loads.append(checkpoint)
        served = self.catalog.add(model, checkpoint, is_on_demand=True)
        await self.may_load.wait()
        if self.failure:
            self.catalog.remove(model)
            raise self.failure
        served.ready = READY
        served.last_used = self.catalog.clock()
        return served

    def evict(self, model, reason: str) -> None:
        self.evicted.append((model.id, reason))
        self.catalog.remove(model.id)


async def get_or_load(demand: Demand, model: str) -> ServedModel | None:
    async with AsyncExitStack() as resources:
        return await demand.get_or_load(model, resources)


def parts(idle_seconds: float = 60.0):
    clock = Clock()
    catalog = Catalog({"m": "m.nemo"}, clock=clock)
    catalog["m"].ready = READY
    residency = FakeResidency(catalog)
    loadable = Loadable({"late": "late.nemo", "other": "other.nemo"}, [])
    return clock, catalog, residency, Demand(residency, catalog, loadable, idle_seconds, clock)


@asynchronous
async def test_a_model_that_one_engine_has_stays_while_another_loads_it():
    clock, catalog, residency, demand = parts()
    asking = asyncio.create_task(get_or_load(demand, "late"))
    while not residency.loads:
        await asyncio.sleep(0)
    catalog.ready(msgspec.structs.replace(READY, model="late"))
    clock.now += 60.0
    demand.unload_idle()
    residency.may_load.set()

    assert (await asking).id == "late"
    assert residency.evicted == []


@asynchronous
async def test_each_failed_load_doubles_the_time_to_the_next_try():
    clock, _, residency, demand = parts()
    residency.may_load.set()
    residency.failure = ModelLoadError("late.nemo: not a checkpoint")
    for rest in (30, 60, 120):
        for _ in range(3):
            with pytest.raises(DemandError, match="not a checkpoint") as refusal:
                await get_or_load(demand, "late")
            assert refusal.value.retry_after == rest
        clock.now += rest
        demand.unload_idle()
    assert len(residency.loads) == 3
    residency.failure = None
    assert (await get_or_load(demand, "late")).id == "late"

    residency.catalog.remove("late")
    residency.failure = ModelLoadError("again")
    with pytest.raises(DemandError) as refusal:
        await get_or_load(demand, "late")
    assert refusal.value.retry_after == 30


@asynchronous
async def test_an_engine_that_is_missing_is_not_the_models_fault():
    _, _, residency, demand = parts()
    residency.may_load.set()
    residency.failure = EngineGoneError("no engine is running")
    with pytest.raises(DemandError, match="no engine is running"):
        await get_or_load(demand, "late")
    residency.failure = None

    assert (await get_or_load(demand, "late")).id == "late"


@asynchronous
async def test_a_model_is_unloaded_when_it_has_been_idle_for_a_while():
    clock, catalog, residency, demand = parts(idle_seconds=60)
    residency.may_load.set()
    model = await get_or_load(demand, "late")
    clock.now += 59
    demand.unload_idle()
    assert residency.evicted == []
    with model.use():
        clock.now += 100
        demand.unload_idle()
        assert residency.evicted == []
    clock.now += 59
    demand.unload_idle()
    assert residency.evicted == []
    clock.now += 1
    demand.unload_idle()

    assert residency.evicted == [("late", "idle")]
    assert "m" in catalog


@asynchronous
async def test_a_loaded_model_stays_until_each_waiting_request_has_it():
    _, catalog, residency, demand = parts()
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        asking = [asyncio.create_task(demand.get_or_load("late", stack)) for stack in (first, second)]
        while not residency.loads:
            await asyncio.sleep(0)
        residency.may_load.set()
        held = []
        while not all(task.done() for task in asking):
            await asyncio.sleep(0)
            held.append(catalog["late"].users if catalog["late"].ready else 1)

        assert min(held) >= 1
        assert catalog["late"].users == 2
    assert catalog["late"].users == 0
