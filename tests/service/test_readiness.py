"""Before a stop, readiness turns first, and who watches it gets the time to notice."""

import asyncio
from types import SimpleNamespace

import pytest

from service.readiness import Readiness


def readiness(now: list[float]) -> Readiness:
    dispatcher = SimpleNamespace(is_ready=True, admission=SimpleNamespace(is_draining=False))
    return Readiness(dispatcher, lambda: now[0])


async def waits(asked_at: list[float], left_at: float) -> bool:
    now = [0.0]
    ready = readiness(now)
    for now[0] in asked_at:
        assert ready.check() == "ready"
    now[0] = left_at
    hurry = asyncio.Event()
    leaving = asyncio.create_task(ready.leave(hurry, 60.0))
    await asyncio.sleep(0)
    assert ready.check() == "draining"
    await asyncio.sleep(0)
    is_waiting = not leaving.done()
    hurry.set()
    await leaving
    return is_waiting


@pytest.mark.parametrize(
    ("asked_at", "left_at", "is_watched"),
    [
        ([], 100.0, False),
        ([100.0], 100.1, True),  # a balancer that has only just begun to send work
        ([100.0, 105.0], 114.9, True),
        ([1.0, 2.0], 100.0, False),
    ],
)
def test_who_asked_lately_is_waited_for(asked_at, left_at, is_watched):
    assert asyncio.run(waits(asked_at, left_at)) == is_watched


def test_the_wait_is_part_of_the_time_of_the_drain():
    async def scenario():
        now = [0.0]
        ready = readiness(now)
        ready.check()
        assert await ready.leave(asyncio.Event(), 0.0) == 0.0

    asyncio.run(scenario())
