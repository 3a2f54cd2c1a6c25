"""A language identifier beside a model that must be told the language, over a real socket with stub engines."""

import httpx
import numpy as np
import pytest

from benchmarks.stub_engine import CRASH_SAMPLES, FAIL_SAMPLES, PHRASES, SURE, UNSURE
from service.settings import Settings
from tests.service.http.test_api import error
from tests.service.serving import form, serving, tone, wav
from transcripts.languages import NAMES

GERMAN, ENGLISH, FRENCH = PHRASES
# The stub finds German, English or French by the number of samples modulo 3.
SAMPLES = {"de": 63_999, "en": 64_000, "fr": 64_001}
SHORT_FRENCH = 16_007


@pytest.fixture(scope="module")
def service():
    with serving(model="prompted.nemo", language_identifier="finder.nemo", max_utterance_seconds=5.0) as served:
        yield served


def post(service, samples: np.ndarray, path: str = "transcriptions", **fields) -> httpx.Response:
    return service.client.post(f"/v1/audio/{path}", **form(wav(samples), **fields))


@pytest.mark.parametrize(("code", "text"), [("de", GERMAN), ("en", ENGLISH), ("fr", FRENCH)])
def test_the_language_is_identified_before_the_recording_is_transcribed(service, code, text):
    answer = post(service, tone(SAMPLES[code]), language="auto")

    body = answer.json()
    assert body["text"] == text
    assert (body["language_source"], body["language_probability"]) == ("audio", pytest.approx(SURE))
    assert body["languages"] == [{"code": code}]
    assert "identify;dur=" in answer.headers["server-timing"]


def test_an_identifier_of_another_rate_gets_audio_at_that_rate(cut_as):
    french = 64_004  # half as many are English
    with serving(model="prompted.nemo", language_identifier="telephone.nemo", max_utterance_seconds=5.0) as served:
        (card,) = served.client.get("/v1/models").json()["data"]
        whole = post(served, tone(french), language="auto").json()
        parts = post(served, cut_as(french, french), language="auto").json()

    assert card["steno"]["abilities"]["language_source"] == whole["language_source"] == "audio"
    assert (whole["text"], parts["text"]) == (ENGLISH, f"{ENGLISH} {ENGLISH}")


def test_the_card_of_a_model_whose_languages_the_identifier_does_not_know_says_what_answers_do():
    with serving(model="prompted.nemo", language_identifier="japanese.nemo") as served:
        (card,) = served.client.get("/v1/models").json()["data"]
        body = post(served, tone(SAMPLES["de"]), language="auto").json()

    assert body["language_source"] == card["steno"]["abilities"]["language_source"] == "assumed"
    assert body["text"] == ENGLISH


@pytest.mark.parametrize("field", ["language", "languages[]"])
def test_a_single_language_that_is_named_is_not_identified(service, field):
    batches = 'steno_batches_total{model="finder"}'
    post(service, tone(SAMPLES["en"]))
    before = service.metric(batches)

    answer = post(service, tone(SAMPLES["fr"]), **{field: "de"}, response_format="verbose_json")

    assert (answer.json()["text"], answer.json()["language_source"]) == (GERMAN, "request")
    assert "identify" not in answer.headers["server-timing"]
    assert service.metric(batches) == before


def test_languages_narrow_the_choice(service):
    body = post(service, tone(SAMPLES["fr"]), **{"languages[]": ["de", "en"]}).json()

    assert body["text"] in (GERMAN, ENGLISH)
    assert body["language_probability"] == pytest.approx(0.5)  # the two are equally unlikely, and one of them it is


def test_parts_that_are_surely_in_another_language_have_it(service, cut_as):
    samples = cut_as(SAMPLES["de"], SAMPLES["de"], SAMPLES["fr"], SAMPLES["de"])

    body = post(service, samples, response_format="verbose_json").json()

    assert body["text"] == " ".join([GERMAN, GERMAN, FRENCH, GERMAN])
    assert body["language"] == "german"
    assert body["language_probability"] == pytest.approx((3 * SURE + (1 - SURE) / 3) / 4, abs=1e-4)
    assert [segment["language"] for segment in body["segments"]] == ["german", "german", "french", "german"]


def test_parts_that_are_not_sure_have_the_language_of_the_recording(service, cut_as):
    samples = cut_as(SAMPLES["de"], SAMPLES["fr"])
    samples[SAMPLES["de"] :] *= 8  # the stub is not sure of what is loud

    body = post(service, samples, response_format="verbose_json").json()

    assert body["text"] == f"{GERMAN} {GERMAN}"
    assert body["segments"][1]["language_probability"] == pytest.approx((1 - UNSURE) / 3)


def test_a_short_part_has_the_language_of_the_recording(service, cut_as):
    samples = cut_as(SAMPLES["de"], SHORT_FRENCH, SAMPLES["de"])

    assert post(service, samples).json()["text"] == " ".join([GERMAN] * 3)


def test_a_translation_need_not_name_what_is_spoken(service):
    body = post(service, tone(SAMPLES["fr"]), "translations", response_format="verbose_json").json()
    spoken = post(service, tone(SAMPLES["en"]), "translations", response_format="verbose_json").json()

    assert (body["text"], body["task"], body["language"]) == (ENGLISH, "translate", "english")
    assert (spoken["text"], spoken["task"]) == (ENGLISH, "transcribe")


def test_what_can_be_translated_is_what_can_be_spoken(service):
    body = post(service, tone(SAMPLES["de"]), target_language="fr", response_format="verbose_json").json()

    assert (body["text"], body["language"]) == (FRENCH, "french")


def test_if_identifying_fails_the_request_fails_as_if_transcribing_had(service):
    answer = post(service, tone(FAIL_SAMPLES))

    assert (answer.status_code, error(answer)["code"]) == (500, "internal_error")


def test_an_engine_that_dies_while_identifying_is_replaced_with_both_models():
    with serving(model="prompted.nemo", language_identifier="finder.nemo") as served:
        answer = post(served, tone(CRASH_SAMPLES))
        assert (answer.status_code, error(answer)["code"]) == (503, "engine_lost")

        assert post(served, tone(SAMPLES["fr"])).json()["text"] == FRENCH


def test_clients_cannot_ask_for_the_identifier(service):
    assert [model["id"] for model in service.client.get("/v1/models").json()["data"]] == ["prompted"]
    assert service.client.get("/v1/models/finder").status_code == 404
    answer = post(service, tone(SAMPLES["fr"]), model="finder")
    assert (answer.status_code, error(answer)["code"]) == (404, "model_not_found")
    assert service.client.get("/readyz").json()["models"] == {"prompted": "ready", "finder": "ready"}


def test_its_batches_are_in_the_metrics_and_its_time_is_a_stage(service):
    stage = 'steno_stage_duration_seconds_count{stage="identify"}'
    before = service.metric(stage)

    post(service, tone(SAMPLES["fr"]))

    assert service.metric(stage) == before + 1
    assert service.metric('steno_batches_total{model="finder"}') > 0


@pytest.mark.parametrize(
    ("languages", "fields", "code", "text"),
    [
        ((), {}, "fr", FRENCH),
        ((), {"languages[]": ["de", "fr"]}, "fr", FRENCH),
        ((), {"languages[]": ["en", "de"]}, "en", ENGLISH),
        (("de", "en"), {}, "de", GERMAN),
        (("de",), {}, "de", GERMAN),
    ],
    ids=str,
)
def test_the_assumed_language_is_the_models_default_or_the_first_that_is_possible(languages, fields, code, text):
    with serving(model="prompted-french.nemo", languages=languages) as served:
        body = post(served, tone(SAMPLES["en"]), response_format="verbose_json", **fields).json()

    assert (body["text"], body["language"]) == (text, NAMES[code])


def test_a_model_that_need_not_be_told_has_its_language_from_the_text():
    with serving(model="polyglot.nemo", language_identifier="finder.nemo") as served:
        body = post(served, tone(SAMPLES["fr"]), language="auto").json()

    assert body["language_source"] == "text"


def test_the_identifier_and_a_model_need_different_ids():
    with pytest.raises(ValueError, match="two models are called 'canary'"):
        Settings(model="canary.nemo", language_identifier="other/canary.nemo")
    assert Settings(model="a.nemo", language_identifier="finder=b/a.nemo").identifier == ("finder", "b/a.nemo")
    assert Settings(model="a.nemo", language_identifier="b.nemo").identifier_edges[-1] == 30.0
