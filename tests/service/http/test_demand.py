"""Requests load the models that they name, if the operator allows them."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.stub_engine import CRASH_SAMPLES, SAMPLE_RATE, WEIGHT_BYTES, transcript
from service.dispatch.recordings import Recordings
from tests.service.serving import PATIENCE, form, serving, tone, wait_for, wav

SECOND = tone(SAMPLE_RATE)
ON_DEMAND = "one=hub/one,two=hub/two,three=hub/three"


def ask(service, model: str, **fields: str):
    return service.post(**form(wav(SECOND), model=model, **fields))


def error(answer) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def loaded(service) -> set[str]:
    return set(service.client.get("/readyz").json()["models"])


def listed(service) -> list[str]:
    return [card["id"] for card in service.client.get("/v1/models").json()["data"]]


def test_it_is_off_unless_the_operator_names_models():
    with serving() as service:
        assert error(ask(service, "hub/one")) == (404, "model_not_found")
        assert listed(service) == ["stub"]


def test_the_first_requests_for_a_model_share_one_load():
    with serving(models_on_demand=ON_DEMAND) as service:
        assert listed(service) == ["stub", "one", "two", "three"]
        assert service.client.get("/v1/models/one").json()["id"] == "one"
        assert loaded(service) == {"stub"}

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: ask(service, "one"), range(100)))

        assert {answer.status_code for answer in answers} == {200}
        assert {answer.json()["text"] for answer in answers} == {transcript(SECOND).text}
        assert {answer.headers["x-steno-model"] for answer in answers} == {"one"}
        assert "load;dur=" in answers[0].headers["server-timing"]
        assert service.metric('steno_model_loads_total{result="ok"}') == 1
        assert loaded(service) == {"stub", "one"}
        assert "load;dur=" not in ask(service, "one").headers["server-timing"]


def test_what_is_not_allowed_is_not_found():
    with serving(models_on_demand="one=hub/one") as service:
        for model in ("two", "hub/one", "../one", "one/", "ONE", "x" * 5000):
            refused = ask(service, model)
            assert error(refused) == (404, "model_not_found")
            assert "this service has 'stub'; GET /v1/models lists those" in refused.json()["error"]["message"]
        assert service.client.get("/v1/models/two").status_code == 404
        assert service.metric("steno_model_loads_total") == 0


def test_idle_models_go_and_come_again():
    with serving(models_on_demand=ON_DEMAND, model_ttl=2.0) as service:
        assert ask(service, "one").status_code == 200
        assert service.metric('steno_graphs{kind="encoder",model="one",state="captured"}') == 5
        assert service.metric('steno_graphs{kind="encoder",model="one",state="refused"}') == 1
        wait_for(lambda: loaded(service) == {"stub"})
        assert 'model="one",state=' not in service.client.get("/metrics").text
        assert ask(service, "one").status_code == 200


def test_the_least_recently_used_goes_when_the_memory_is_needed():
    limit = 3 * WEIGHT_BYTES
    with serving(models_on_demand=ON_DEMAND, max_weight_bytes=limit) as service:
        for model in ("one", "two", "one", "three"):
            assert ask(service, model).status_code == 200
        assert loaded(service) == {"stub", "one", "three"}


def test_a_model_for_which_there_can_be_no_room_is_refused():
    with serving(models_on_demand=ON_DEMAND, max_weight_bytes=WEIGHT_BYTES) as service:
        refused = ask(service, "one")

        assert error(refused) == (503, "model_load_failed")
        assert f"take {WEIGHT_BYTES} bytes, and 0 of {WEIGHT_BYTES} are left" in refused.json()["error"]["message"]
        assert loaded(service) == {"stub"}


def test_a_model_cannot_be_loaded_before_a_lost_engine_is_replaced(monkeypatch):
    monkeypatch.setattr("service.supervision._BACKOFF_SECONDS", (PATIENCE,))
    with serving(models_on_demand=ON_DEMAND) as service:
        os.kill(service.server.fleet.engines[0].pid, signal.SIGKILL)
        wait_for(lambda: not service.server.fleet.engines)

        refused = ask(service, "one")

    assert error(refused) == (503, "model_load_failed")
    assert refused.headers["retry-after"] == "10"


def test_while_a_model_loads_others_answer_and_the_service_is_ready():
    with serving(models_on_demand="endless=hub/endless") as service, ThreadPoolExecutor(1) as pool:
        loading = pool.submit(ask, service, "endless")
        wait_for(lambda: service.client.get("/readyz").json()["models"].get("endless") == "loading")
        assert service.client.get("/readyz").status_code == 200
        assert ask(service, "stub").status_code == 200
        assert error(service.post(**form(wav(tone(CRASH_SAMPLES))))) == (503, "engine_lost")

        assert error(loading.result()) == (503, "model_load_failed")


def test_models_that_evict_each_other_are_all_answered():
    with serving(models_on_demand=ON_DEMAND, max_weight_bytes=2 * WEIGHT_BYTES) as service:
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda model: ask(service, model), ["one", "two", "three"] * 8))

        assert {answer.status_code for answer in answers} == {200}
        assert [answer.headers["x-steno-model"] for answer in answers] == ["one", "two", "three"] * 8
        assert len(loaded(service)) <= 2


def test_a_load_that_takes_too_long_is_503_and_goes_on():
    with serving(models_on_demand=ON_DEMAND, request_timeout_seconds=1.0) as service:
        service.hold_engine()
        refused = ask(service, "one")
        service.release_engine()

        assert error(refused) == (503, "model_loading")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        wait_for(lambda: service.client.get("/readyz").json()["models"].get("one") == "ready")
        assert ask(service, "one").status_code == 200


def test_the_wait_for_a_model_is_part_of_a_recordings_time_and_its_upload_is_not(monkeypatch):
    left, transcribe = [], Recordings.transcribe

    def note_time(recordings, recording, options):
        left.append(options.most_seconds)
        return transcribe(recordings, recording, options)

    monkeypatch.setattr(Recordings, "transcribe", note_time)
    with serving(models_on_demand=ON_DEMAND, request_timeout_seconds=77.0) as service:
        brought, there = ask(service, "one"), ask(service, "one")

    assert (brought.status_code, there.status_code) == (200, 200)
    assert f"load;dur={1000 * (77.0 - left[0]):.1f}" in brought.headers["server-timing"]
    assert left[1] == 77.0


@pytest.mark.parametrize("name", ["unreadable", "fatal"])
def test_a_failed_load_is_not_tried_again_for_each_request(name):
    with serving(models_on_demand=f"hub/{name}") as service:
        answers = [ask(service, f"hub/{name}") for _ in range(3)]

        assert [error(answer) for answer in answers] == [(503, "model_load_failed")] * 3
        assert answers[0].json()["error"]["param"] == "model"
        assert answers[0].headers["x-should-retry"] == "false"
        assert 1 <= int(answers[2].headers["retry-after"]) <= 30
        assert service.metric('steno_model_loads_total{result="error"}') == 1
        wait_for(lambda: service.client.get("/readyz").status_code == 200)
        assert ask(service, "stub").status_code == 200
        assert f"hub/{name}" not in service.client.get("/metrics").text


def test_why_a_model_cannot_be_loaded_is_told_without_paths_of_the_server(tmp_path):
    checkpoint = tmp_path / "gone.stub"
    checkpoint.touch()
    with serving(models_on_demand=str(checkpoint)) as service:
        checkpoint.unlink()
        answer = ask(service, "gone.stub")

    assert answer.json()["error"]["code"] == "model_load_failed"
    assert "gone.stub: no such file" in answer.json()["error"]["message"]
    assert str(tmp_path) not in answer.text


def test_a_client_that_leaves_while_it_loads_frees_its_place():
    with serving(models_on_demand=ON_DEMAND) as service:
        with service.held():
            with pytest.raises(Exception, match="timed out"):
                service.post(**form(wav(SECOND), model="one"), timeout=0.5)
            wait_for(lambda: service.server.dispatcher.admission.requests == 0)
        assert ask(service, "one").status_code == 200
        assert service.metric('steno_model_loads_total{result="ok"}') == 1


def test_a_model_that_is_not_loaded_is_listed_as_absent():
    with serving(models_on_demand="one=hub/one") as service:
        cards = service.client.get("/v1/models").json()["data"]
        assert [(card["id"], card["steno"]["state"]) for card in cards] == [("stub", "ready"), ("one", "absent")]
        assert service.client.get("/v1/models/one").json()["steno"] == {"state": "absent", "abilities": None}
        ask(service, "one")
        assert service.client.get("/v1/models/one").json()["steno"]["state"] == "ready"


def test_a_model_that_is_being_unloaded_is_absent_because_a_request_loads_it_again():
    with (
        serving(models_on_demand=ON_DEMAND, max_weight_bytes=2 * WEIGHT_BYTES) as service,
        ThreadPoolExecutor(3) as pool,
    ):
        for model in ("two", "one"):  # their sizes are known from now on
            assert ask(service, model).status_code == 200
        with service.held():
            answers = [pool.submit(ask, service, "one")]
            wait_for(lambda: service.server.dispatcher.catalog["one"].users == 1)
            answers.append(pool.submit(ask, service, "two"))
            wait_for(lambda: service.server.dispatcher.catalog["one"].is_leaving)

            cards = [service.client.get("/v1/models/one").json(), *service.client.get("/v1/models").json()["data"]]
            assert [card["steno"]["state"] for card in cards if card["id"] == "one"] == ["absent", "absent"]
            answers.append(pool.submit(ask, service, "one"))
        assert [answer.result().status_code for answer in answers] == [200, 200, 200]
