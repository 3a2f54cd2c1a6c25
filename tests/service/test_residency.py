"""Loading models beside others, with a service and a stub engine."""

import asyncio

import pytest

from benchmarks.stub_engine import SAMPLE_RATE, WEIGHT_BYTES
from service.engine.supervisor import ModelLoadError
from tests.service.serving import ThreadedServer, form, serving, tone, wav


def load(service: ThreadedServer, model: str, checkpoint: str) -> None:
    asyncio.run_coroutine_threadsafe(service.server.residency.load(model, checkpoint), service.loop).result()


def evict(service: ThreadedServer, model: str) -> None:
    async def evicted() -> None:
        await service.server.residency.evict(service.server.dispatcher.catalog[model], "idle")

    asyncio.run_coroutine_threadsafe(evicted(), service.loop).result()


def ask(service: ThreadedServer, model: str) -> int:
    return service.post(**form(wav(tone(SAMPLE_RATE)), model=model)).status_code


def ready(service: ThreadedServer) -> set[str]:
    models = service.client.get("/readyz").json()["models"]
    return {model for model, state in models.items() if state == "ready"}


def test_no_model_is_unloaded_for_one_that_would_have_no_room_even_then():
    with serving(models_on_demand="one=hub/one", max_weight_bytes=2 * WEIGHT_BYTES) as service:
        assert ask(service, "one") == 200
        with pytest.raises(ModelLoadError, match=f"take {2 * WEIGHT_BYTES} bytes, and {WEIGHT_BYTES} of"):
            load(service, "large", "hub/heavy")
        assert ready(service) == {"stub", "one"}

        with service.held():  # now that its size is known, it is not loaded again
            with pytest.raises(ModelLoadError, match=f"take {2 * WEIGHT_BYTES} bytes, and {WEIGHT_BYTES} of"):
                load(service, "large", "hub/heavy")
        assert ready(service) == {"stub", "one"}


def test_a_models_size_is_that_of_its_checkpoint_and_not_of_another_that_had_its_id(tmp_path):
    large = tmp_path / "large.nemo"
    with large.open("wb") as file:
        file.truncate(2 * WEIGHT_BYTES)
    with serving(models_on_demand="one=hub/one", max_weight_bytes=3 * WEIGHT_BYTES) as service:
        load(service, "late", "hub/small")
        evict(service, "late")
        assert ask(service, "one") == 200
        load(service, "late", str(large))

        assert ready(service) == {"stub", "late"}
