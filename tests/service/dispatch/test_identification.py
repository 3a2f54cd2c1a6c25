"""The parts of a recording are decided on in their order, whichever is identified first."""

import asyncio

import pytest

from service.dispatch.identification import Identification, PartLanguages
from service.dispatch.utterance import Lane
from transcripts.spoken_language import Spoken

BY = Identification(Lane("identifier"), 16_000, ("de", "en"), is_exhaustive=False)
GERMAN, ENGLISH, UNSURE = {"de": 0.9, "en": 0.1}, {"de": 0.05, "en": 0.95}, {"de": 0.45, "en": 0.55}


async def answered(probabilities, event=None):
    if event:
        await event.wait()
    return probabilities


def test_a_part_waits_for_those_before_it():
    async def run():
        languages, first = PartLanguages(BY), asyncio.Event()
        turns = [languages.next_turn() for _ in range(3)]
        tasks = [
            asyncio.create_task(turns[0].decide(answered(GERMAN, first), 20.0)),
            asyncio.create_task(turns[1].decide(answered(UNSURE), 10.0)),
            asyncio.create_task(turns[2].decide(answered(ENGLISH), 10.0)),
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        first.set()
        return await asyncio.gather(*tasks)

    found = asyncio.run(run())

    assert [one.part.language for one in found] == ["de", "de", "en"]
    assert found[0].recording == Spoken("de", 0.9)
    assert found[2].recording.language == "de"
    assert all(one.seconds >= 0 for one in found)


def test_a_part_that_fails_does_not_hold_up_those_after_it():
    async def fails():
        raise ArithmeticError

    async def run():
        languages = PartLanguages(BY)
        first, second = languages.next_turn(), languages.next_turn()
        after = asyncio.create_task(second.decide(answered(ENGLISH), 9.0))
        with pytest.raises(ArithmeticError):
            await first.decide(fails(), 9.0)
        return await after

    assert asyncio.run(run()).part == Spoken("en", 0.95)


def test_a_part_that_is_cancelled_does_not_hold_up_those_after_it():
    async def run():
        languages = PartLanguages(BY)
        first, second = languages.next_turn(), languages.next_turn()
        before = asyncio.create_task(first.decide(answered(GERMAN, asyncio.Event()), 9.0))
        after = asyncio.create_task(second.decide(answered(ENGLISH), 9.0))
        await asyncio.sleep(0)
        before.cancel()
        return await after

    assert asyncio.run(run()).part.language == "en"
