"""One service, several models: each request names one, and admins load and unload others."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.engine.stub import CRASH_SAMPLES, SAMPLE_RATE, WEIGHT_BYTES, transcript
from service.keys import digest
from tests.service.serving import PATIENCE, form, serving, tone, wait_for, wav

KEY = "sk-steno-admin"
ADMIN = {"authorization": f"Bearer {KEY}"}
SECOND = tone(SAMPLE_RATE)
SETTINGS = {"model": None, "models": "first.nemo,second=ctc.nemo", "admin_keys": f"root:{digest(KEY)}"}


@pytest.fixture
def service():
    with serving(**SETTINGS) as served:
        yield served


def ask(service, model: str, samples=SECOND, **fields: str):
    return service.post(**form(wav(samples), model=model, **fields))


def error(answer) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def load(service, checkpoint: str):
    return service.client.post("/v1/admin/models", json={"checkpoint": checkpoint}, headers=ADMIN)


def unload(service, model: str):
    return service.client.delete(f"/v1/admin/models/{model}", headers=ADMIN)


def listed(service) -> list[str]:
    return [card["id"] for card in service.client.get("/v1/models").json()["data"]]


def test_each_request_is_answered_by_the_model_and_the_decoder_that_it_names(service):
    asked = [("first", {}), ("second", {}), ("second", {"decoder": "ctc"}), ("second", {"decoder": "tdt"})] * 3
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda one: ask(service, one[0], **one[1]), asked))

    heard, by_ctc = transcript(SECOND).text, transcript(SECOND, "ctc").text
    assert [answer.json()["text"] for answer in answers] == [heard, heard, by_ctc, heard] * 3
    assert service.metric('steno_audio_seconds_total{outcome="ok",model="first"}') == 3.0
    assert service.metric('steno_audio_seconds_total{outcome="ok",model="second"}') == 9.0


def test_models_are_listed_found_and_ready(service):
    assert listed(service) == ["first", "second"]
    assert service.client.get("/v1/models/second").json()["id"] == "second"
    assert service.client.get("/v1/models/whisper-1").json()["id"] == "first"
    assert service.client.get("/readyz").json() == {
        "status": "ready",
        "models": {"first": "ready", "second": "ready"},
    }


def test_an_option_that_no_model_has_is_refused_by_its_field(service):
    unknown, other = ask(service, "third"), ask(service, "second", decoder="aed")
    wrong = ask(service, "second", decoder="beam")

    assert error(unknown) == (404, "model_not_found")
    assert "'first', 'second'" in unknown.json()["error"]["message"]
    assert error(other) == (400, "unsupported_value")
    assert "'tdt', 'ctc'" in other.json()["error"]["message"]
    assert (error(wrong), wrong.json()["error"]["param"]) == ((400, "invalid_value"), "decoder")


def test_a_model_comes_answers_and_goes(service):
    came = load(service, "late=remote")
    state = {model["id"]: model for model in service.client.get("/v1/admin/models", headers=ADMIN).json()["data"]}

    assert (came.status_code, came.json()["state"], came.json()["weight_bytes"]) == (201, "ready", WEIGHT_BYTES)
    assert state["late"] == came.json()
    assert ask(service, "late").json()["text"] == transcript(SECOND).text
    assert service.metric('steno_graphs{kind="encoder",model="late",state="captured"}') == 5
    assert service.metric('steno_graphs{kind="encoder",model="late",state="refused"}') == 1
    assert error(load(service, "late=again.nemo")) == (409, "model_exists")

    assert unload(service, "late").json() == {"id": "late", "object": "model", "deleted": True}
    assert error(ask(service, "late")) == (404, "model_not_found")
    assert error(unload(service, "late")) == (404, "model_not_found")
    assert listed(service) == ["first", "second"]
    assert 'model="late",state=' not in service.client.get("/metrics").text
    assert load(service, "late=remote").status_code == 201


def test_a_model_that_is_unloaded_answers_its_accepted_requests(service):
    service.hold_engine()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(ask, service, "second")
        wait_for(lambda: service.metric("steno_queue_wait_seconds_count") == 1)
        going = pool.submit(unload, service, "second")
        wait_for(lambda: listed(service) == ["first"])
        refused, again = ask(service, "second"), unload(service, "second")
        assert not going.done()
        service.release_engine()

        assert asked.result().json()["text"] == transcript(SECOND).text
        assert going.result().status_code == 200
    assert error(refused) == (404, "model_not_found")
    assert error(again) == (409, "model_busy")
    assert service.client.get("/readyz").status_code == 200


def test_a_model_that_cannot_be_loaded_is_an_error_of_its_request_alone(service):
    refused = load(service, "unreadable")

    assert error(refused) == (400, "model_load_failed")
    assert "unreadable: not a checkpoint" in refused.json()["error"]["message"]
    assert listed(service) == ["first", "second"]
    assert ask(service, "first").status_code == 200


@pytest.mark.parametrize("checkpoint", ["", "/", "a\0b", "x" * 5000, "\u202e", "x/" + "y" * 300 + "\n"])
def test_a_name_that_no_checkpoint_can_have_is_refused(service, checkpoint):
    assert error(load(service, checkpoint)) == (400, "invalid_value")


def test_a_model_cannot_be_loaded_before_a_lost_engine_is_replaced(service, monkeypatch):
    monkeypatch.setattr("service.supervision._BACKOFF_SECONDS", (PATIENCE,))
    os.kill(service.server.fleet.engines[0].pid, signal.SIGKILL)
    wait_for(lambda: not service.server.fleet.engines)

    refused = load(service, "late.nemo")

    assert error(refused) == (503, "model_load_failed")
    assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("10", "true")


def test_while_a_model_loads_others_answer_and_it_is_not_ready(service):
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, service, "endless")
        wait_for(lambda: "endless" in listed(service))
        assert ask(service, "first").status_code == 200
        assert error(ask(service, "endless")) == (503, "model_loading")
        assert error(unload(service, "endless")) == (409, "model_busy")
        assert service.client.get("/readyz").json()["models"]["endless"] == "loading"
        assert service.client.get("/readyz").status_code == 200
        assert error(ask(service, "first", tone(CRASH_SAMPLES))) == (503, "engine_lost")

        assert error(loading.result()) == (400, "model_load_failed")


def test_weights_over_the_limit_are_not_kept():
    with serving(**SETTINGS, max_weight_bytes=2 * WEIGHT_BYTES) as service:
        refused = load(service, "late.nemo")

        assert error(refused) == (400, "model_load_failed")
        assert f"take {WEIGHT_BYTES} bytes, and 0 of {2 * WEIGHT_BYTES} are left" in refused.json()["error"]["message"]
        assert listed(service) == ["first", "second"]
        assert unload(service, "first").status_code == 200
        assert load(service, "late.nemo").status_code == 201


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}])
def test_admin_routes_need_an_admin_key(service, headers):
    answers = [
        service.client.get("/v1/admin/models", headers=headers),
        service.client.post("/v1/admin/models", json={"checkpoint": "x"}, headers=headers),
        service.client.delete("/v1/admin/models/first", headers=headers),
    ]

    assert [error(answer) for answer in answers] == [(401, "invalid_api_key")] * 3
    assert listed(service) == ["first", "second"]


def test_without_admin_keys_admin_routes_are_closed():
    with serving(api_keys=f"me:{digest(KEY)}") as service:
        assert error(load(service, "x.nemo")) == (403, "admin_disabled")
        assert error(service.client.get("/v1/admin/models")) == (403, "admin_disabled")


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b"[" * 5_000_000, 401),
        (ADMIN, b"[" * 5_000_000, 413),
        (ADMIN, b"[" * 5_000, 400),
        (ADMIN, b"[]", 400),
        (ADMIN, b'{"checkpoint": "x", "more": 1}', 400),
    ],
)
def test_the_body_of_an_admins_request_is_read_after_the_key_and_is_small(service, headers, body, status):
    answer = service.client.post("/v1/admin/models", content=body, headers=headers)

    assert answer.status_code == status
