"""A worker's core, beside a session of the main process; their messages are sent as MessagePack."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from audio.segment.segmenter import Segment
from service.dispatch.recordings import Options
from service.http.errors import RequestError
from service.http.keys.allowance import Allowance
from service.workers.protocol import End
from service.workers.remote import RemoteCore
from tests.asynchronous import asynchronous
from tests.service.dispatch.fake_engine import LANE, RATE, recorded, settle
from tests.service.workers.sessions import LIMITS, session

OPTIONS = Options("caller", LANE, most_seconds=60.0)


@asynccontextmanager
async def with_core() -> AsyncIterator[SimpleNamespace]:
    """A session, the core of its worker, and what that asked for."""
    async with session() as on:
        on.asked = []

        def ask(message, descriptor=None) -> None:
            on.asked.append(message)
            on.worker.send(message, descriptor)

        on.remote = RemoteCore(on.core.gate, on.core.catalog, loads_on_demand=False, send=ask, arena=on.arena)
        on.handle = on.remote.handle
        yield on


async def answers_of(on, recording) -> list[str]:
    async def engine() -> None:
        while True:
            await asyncio.sleep(0.001)
            if on.engine.batches:
                on.engine.answer(on.dispatcher)

    answering = asyncio.create_task(engine())
    try:
        async with aclosing(on.remote.transcribe(recording, OPTIONS)) as answers:
            return [answer.transcript.text async for answer in answers]
    finally:
        answering.cancel()


@pytest.mark.parametrize("in_memory", [True, False])
@asynchronous
async def test_a_recording_is_handed_over_with_its_cuts_and_answered_in_order(monkeypatch, in_memory):
    async with with_core() as on:
        with recorded(monkeypatch, 40, (1, 9), (10, 12), (20, 29), seconds_in_memory=1e9 * in_memory) as recording:
            assert await answers_of(on, recording) == ["1.0", "10.0", "20.0"]
        with recorded(monkeypatch, 2, rule=None, seconds_in_memory=1e9) as recording:
            assert await answers_of(on, recording) == ["0.0"]
        await settle()
        assert on.arena.is_empty
        assert End(1) not in on.asked  # it had ended


@pytest.mark.parametrize("in_memory", [True, False])
@asynchronous
async def test_quiet_parts_of_a_recording_that_is_cut_are_raised(monkeypatch, in_memory):
    async with with_core() as on:
        with recorded(monkeypatch, 3, (1, 2), seconds_in_memory=1e9 * in_memory, scale=2**-10) as recording:
            (raised,) = await answers_of(on, recording)
            assert float(raised) == pytest.approx(10 ** (-23 / 20))
            assert (await recording.read(Segment(RATE, 2 * RATE)))[0] == np.float32(float(raised))


@asynchronous
async def test_an_error_while_it_is_cut_is_the_requests_and_withdraws_it(monkeypatch):
    async with with_core() as on:
        with recorded(monkeypatch, 40, (1, 9), seconds_in_memory=1e9, error=ValueError("no cut")) as recording:
            with pytest.raises(ValueError, match="no cut"):
                await answers_of(on, recording)
        await settle()
        assert not on.dispatcher.admission.backlog.entries
        assert on.arena.is_empty


@asynchronous
async def test_its_memory_is_free_only_when_the_main_process_has_ended_it(monkeypatch):
    async with with_core() as on:
        with recorded(monkeypatch, 2, rule=None, seconds_in_memory=1e9) as recording:
            async with aclosing(on.remote.transcribe(recording, OPTIONS)) as answers:
                first = asyncio.ensure_future(anext(answers))
                await settle()
                assert on.dispatcher.admission.backlog.entries
                first.cancel()
                await asyncio.wait({first})
            assert not on.arena.is_empty
            await settle()
            assert on.arena.is_empty
            assert not on.dispatcher.admission.backlog.entries


@asynchronous
async def test_a_model_on_demand_is_held_until_the_last_request_for_it_ends_and_others_stay_by_themselves():
    async with with_core() as on:
        entry = on.dispatcher.catalog["m"]
        async with on.remote.hold_model("m") as model:
            assert (model, entry.users, on.asked) == (entry, 0, [])
        entry.is_on_demand = True
        async with on.remote.hold_model("m") as first, on.remote.hold_model("m") as second:
            assert first is second is entry
            assert entry.users == 2
        await settle()
        assert entry.users == 0
        async with on.remote.hold_model("nobody") as none:
            assert none is None


@asynchronous
async def test_a_key_is_used_once_at_a_time_and_gets_back_what_came_to_nothing():
    async with with_core() as on:
        allowance = Allowance(LIMITS, name="alice")
        with pytest.raises(RequestError, match="requests under way"):
            async with on.remote.use_key(allowance), on.remote.use_key(allowance):
                pass
        assert allowance.levels == (pytest.approx(1, abs=0.1), None)
        await settle()
        with pytest.raises(MemoryError):  # a 503
            async with on.remote.use_key(allowance):
                raise MemoryError
        await settle()
        async with on.remote.use_key(allowance):
            assert allowance.levels == (pytest.approx(0, abs=0.1), None)
