"""One service, several models: each request names one."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.stub_engine import transcript
from tests.service.http.test_demand import SECOND, ask, error, listed
from tests.service.serving import serving


@pytest.fixture
def service():
    with serving(model="first.nemo,second=ctc.nemo") as served:
        yield served


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
    assert error(service.client.get("/v1/models/some/other")) == (404, "model_not_found")
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
