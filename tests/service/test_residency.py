"""Loading models beside others, with a service and a stub engine."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from service.engine.stub import SAMPLE_RATE, WEIGHT_BYTES
from service.engine.supervisor import ModelLoadError
from tests.service.serving import ThreadedServer, form, serving, tone, wait_for, wav


def begin(service: ThreadedServer, work: Coroutine) -> Future:
    return asyncio.run_coroutine_threadsafe(work, service.loop)


def ask(service: ThreadedServer, model: str) -> int:
    return service.post(**form(wav(tone(SAMPLE_RATE)), model=model)).status_code


def ready(service: ThreadedServer) -> set[str]:
    models = service.client.get("/readyz").json()["models"]
    return {model for model, state in models.items() if state == "ready"}


def test_a_load_goes_on_without_its_caller_so_the_engine_has_no_model_that_nobody_knows():
    with serving() as service:
        service.hold_engine()
        try:
            loading = begin(service, service.server.residency.load_for_operator("late", "hub/late"))
            wait_for(lambda: "late" in service.server.dispatcher.catalog)
            loading.cancel()
        finally:
            service.release_engine()

        wait_for(lambda: "late" in service.server.fleet.engines[0].models)
        assert ready(service) == {"stub", "late"}
        assert ask(service, "late") == 200
        begin(service, service.server.residency.unload("late")).result()
        assert "late" not in service.server.fleet.engines[0].models


def test_a_model_that_makes_room_goes_though_the_caller_of_the_load_has_left():
    with (
        serving(models_on_demand="one=hub/one", max_weight_bytes=2 * WEIGHT_BYTES) as service,
        ThreadPoolExecutor() as pool,
    ):
        begin(
            service, service.server.residency.load_for_operator("late", "hub/late")
        ).result()  # its size is known from now on
        begin(service, service.server.residency.unload("late")).result()
        assert ask(service, "one") == 200
        one = service.server.dispatcher.catalog["one"]
        service.hold_engine()
        try:
            asked = pool.submit(ask, service, "one")
            wait_for(lambda: one.users == 1)
            loading = begin(service, service.server.residency.load_for_operator("late", "hub/late"))
            wait_for(lambda: one.is_leaving)
            loading.cancel()
        finally:
            service.release_engine()

        assert asked.result() == 200
        wait_for(lambda: ready(service) == {"stub", "late"})


def test_no_model_is_unloaded_for_one_that_would_have_no_room_even_then():
    with serving(models_on_demand="one=hub/one", max_weight_bytes=2 * WEIGHT_BYTES) as service:
        assert ask(service, "one") == 200
        with pytest.raises(ModelLoadError, match=f"take {2 * WEIGHT_BYTES} bytes, and {WEIGHT_BYTES} of"):
            begin(service, service.server.residency.load_for_operator("large", "hub/heavy")).result()
        assert ready(service) == {"stub", "one"}

        service.hold_engine()  # now that its size is known, it is not loaded again
        try:
            with pytest.raises(ModelLoadError, match=f"take {2 * WEIGHT_BYTES} bytes, and {WEIGHT_BYTES} of"):
                begin(service, service.server.residency.load_for_operator("large", "hub/heavy")).result()
        finally:
            service.release_engine()
        assert ready(service) == {"stub", "one"}


def test_a_models_size_is_that_of_its_checkpoint_and_not_of_another_that_had_its_id(tmp_path):
    large = tmp_path / "large.nemo"
    with large.open("wb") as file:
        file.truncate(2 * WEIGHT_BYTES)
    with serving(models_on_demand="one=hub/one", max_weight_bytes=3 * WEIGHT_BYTES) as service:
        begin(service, service.server.residency.load_for_operator("late", "hub/small")).result()
        begin(service, service.server.residency.unload("late")).result()
        assert ask(service, "one") == 200
        begin(service, service.server.residency.load_for_operator("late", str(large))).result()

        assert ready(service) == {"stub", "late"}


def test_what_is_loaded_stays_in_the_cache_when_a_model_of_a_pattern_comes():
    with serving(models_on_demand="named=hub/named,owner/*") as service:
        assert ask(service, "named") == 200
        assert ask(service, "owner/model") == 200
        keeps = {load.model: load.keeps for load in next(iter(service.server.fleet._devices.values()))._loads.values()}

    assert set(keeps["owner/model"]) >= {"hub/named", "stub.nemo"}
    assert keeps["named"] is None
