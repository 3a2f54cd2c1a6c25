"""A model is found by its id or an alias, and stays for as long as a request holds it."""

import asyncio

import pytest

from service.dispatch.catalog import Catalog
from tests.service.dispatch.fake_engine import READY


def catalog() -> Catalog:
    return Catalog({"m": "m.nemo", "other": "o.nemo"}, aliases=("whisper-1", "other"))


def test_an_alias_is_the_first_model_unless_another_has_that_id():
    models = catalog()

    assert models.find("m") is models.find("whisper-1") is models["m"]
    assert models.find("other") is models["other"]
    assert models.find("none") is None


def test_an_id_is_given_once():
    with pytest.raises(KeyError):
        catalog().add("m", "another.nemo")


def test_a_model_that_leaves_is_not_found_and_is_unused_when_the_last_request_is_done():
    async def scenario() -> None:
        model = catalog()["m"]
        await model.until_unused()
        with model.use(), model.use():
            waiting = asyncio.create_task(model.until_unused())
            await asyncio.sleep(0)
            assert model.users == 2
            assert not waiting.done()
        await asyncio.wait_for(waiting, 10)

    models = catalog()
    models["m"].is_leaving = True
    assert models.find("m") is models.find("whisper-1") is None
    asyncio.run(scenario())


def test_a_model_that_was_just_loaded_is_not_idle():
    now = 1000.0
    models = Catalog({"m": "m.nemo"}, clock=lambda: now)
    models.ready(READY)
    assert models["m"].last_used == 1000.0

    now = 1010.0
    models.ready(READY)  # by another engine
    assert models["m"].last_used == 1000.0
    with models["m"].use():
        now = 1020.0
    assert models["m"].last_used == 1020.0
