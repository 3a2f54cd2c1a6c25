"""The parts of a recording are decided on in their order, whichever is identified first."""

import asyncio

import pytest

from service.dispatch.identification import Identification, PartLanguages
from service.dispatch.utterance import Lane
from tests.asynchronous import asynchronous
from tests.service.dispatch.fake_engine import settle
from transcripts.spoken_language import Spoken

BY = Identification(Lane("identifier"), 16_000, ("de", "en"), is_exhaustive=False)
GERMAN, ENGLISH, UNSURE = {"de": 0.9, "en": 0.1}, {"de": 0.05, "en": 0.95}, {"de": 0.45, "en": 0.55}


async def answered(probabilities, event=None):
    if event:
        await event.wait()
    return probabilities


@asynchronous
async def test_a_part_waits_for_those_before_it():
    languages, first = PartLanguages(BY), asyncio.Event()
    said = [answered(GERMAN, first), answered(UNSURE), answered(ENGLISH)]
    tasks = [
        asyncio.create_task(languages.next_turn().decide(one, 10.0 + 10.0 * (not at))) for at, one in enumerate(said)
    ]
    await settle()
    assert not any(task.done() for task in tasks)
    first.set()

    found = await asyncio.gather(*tasks)

    assert [one.part.language for one in found] == ["de", "de", "en"]
    assert found[0].recording == Spoken("de", 0.9)
    assert found[2].recording.language == "de"
    assert all(one.seconds >= 0 for one in found)


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "is cancelled"])
@asynchronous
async def test_a_part_that_comes_to_nothing_does_not_hold_up_those_after_it(fails):
    async def failing():
        raise ArithmeticError

    languages = PartLanguages(BY)
    first, second = languages.next_turn(), languages.next_turn()
    before = asyncio.create_task(first.decide(failing() if fails else answered(GERMAN, asyncio.Event()), 9.0))
    after = asyncio.create_task(second.decide(answered(ENGLISH), 9.0))
    await asyncio.sleep(0)
    before.cancel()

    assert (await after).part == Spoken("en", 0.95)
    assert isinstance((await asyncio.gather(before, return_exceptions=True))[0], ArithmeticError) == fails
