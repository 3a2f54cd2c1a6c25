"""The language of a text is detected if it is not named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.stub_engine import GREEK, PHRASES
from service.text_language import detect_languages
from tests.service.http.test_api import error
from tests.service.serving import events, form, serving, tone, wav
from transcripts.languages import NAMES

GERMAN, ENGLISH, FRENCH = (tone(48_000 + remainder) for remainder in range(3))


@pytest.fixture(scope="module")
def service():
    with serving(model="polyglot.nemo,unknown.nemo,tagged.nemo,scripted.nemo") as served:
        yield served


def post(service, samples=GERMAN, model="polyglot", **fields):
    return service.post(**form(wav(samples), model=model, **fields))


def test_the_language_that_the_model_itself_writes_counts(service):
    """The louder one is tagged with another language than its words have."""
    answer = post(service, GERMAN, "tagged", response_format="verbose_json").json()
    loud = post(service, tone(48_000, 0.9), "tagged", response_format="verbose_json").json()
    stream = post(service, tone(48_000, 0.9), "tagged", response_format="verbose_json", stream="true")
    done = events(stream)[-1]

    assert (answer["language"], answer["language_source"]) == ("german", "model")
    for told in (loud, done):
        assert (told["language"], told["language_source"]) == ("english", "model")
    assert loud["language_probability"] == pytest.approx(0.9)
    assert {segment["language"] for segment in loud["segments"]} == {"english"}
    assert service.client.get("/v1/models/tagged").json()["steno"]["abilities"]["language_source"] == "model"


def test_a_tag_changes_no_language_that_the_request_names(service):
    answer = post(service, GERMAN, "tagged", response_format="verbose_json", language="fr").json()

    assert (answer["language"], answer["language_source"]) == ("french", "request")
    assert "language" not in answer["segments"][0]


@pytest.mark.parametrize("language", ["de", "de-AT", "deu", "German"])
def test_a_language_that_is_named_is_claimed_only_if_the_text_is_in_it(service, language):
    answer = post(service, ENGLISH, response_format="verbose_json", language=language).json()
    numbers = post(service, model="unknown", response_format="verbose_json", language=language).json()

    assert (answer["language"], answer["language_source"]) == ("english", "text")
    assert answer["segments"][0]["language"] == "english"
    assert (numbers["language"], numbers["language_source"], numbers["languages"]) == ("german", "assumed", [])


@pytest.mark.parametrize("stream", ["true", "false"])
@pytest.mark.parametrize(
    ("asked", "text", "language", "source"),
    [
        ({"language": "el"}, GREEK, "greek", "request"),
        ({"languages[]": "el"}, GREEK, "greek", "request"),
        ({"language": "de"}, PHRASES[1], "english", "text"),
        ({"languages[]": ["el", "en"]}, PHRASES[1], "english", "text"),
        ({}, PHRASES[1], "english", "text"),
    ],
    ids=str,
)
def test_a_language_with_a_script_of_its_own_is_written_in_it(service, asked, text, language, source, stream):
    answer = post(service, ENGLISH, "scripted", response_format="verbose_json", stream=stream, **asked)

    whole = events(answer)[-1] if stream == "true" else answer.json()
    assert (whole["text"], whole["language"], whole["language_source"]) == (text, language, source)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_single_language_of_the_settings_is_the_one_that_is_written(processes):
    with serving(model="scripted.nemo", languages=("el",), http_processes=processes) as served:
        plain = served.post(**form(wav(ENGLISH))).json()
        named = served.post(**form(wav(ENGLISH), response_format="verbose_json", language="el")).json()

    assert plain["text"] == named["text"] == GREEK
    assert (named["language"], named["language_source"]) == ("greek", "request")


def test_given_languages_limit_the_detection(service):
    answer = post(service, GERMAN, response_format="verbose_json", **{"languages[]": ["en", "fra"]}).json()
    named = post(service, GERMAN, response_format="verbose_json", languages="french").json()

    plain = post(service, GERMAN, **{"languages[]": ["en", "fra"]}).json()

    assert answer["language"] == plain["language"]
    assert answer["language"] in ("english", "french")
    assert answer["languages"] == plain["languages"] != [{"code": "de"}]
    assert (named["language"], named["language_source"]) == ("german", "text")


@pytest.mark.parametrize(
    ("languages", "code"), [("klingon", "invalid_value"), ("es", "unsupported_value"), ("de,xx", "invalid_value")]
)
def test_unknown_languages_and_those_not_spoken_are_refused_by_the_field(service, languages, code):
    refusal = error(post(service, languages=languages))

    assert (refusal["code"], refusal["param"]) == (code, "languages")


def test_the_language_of_a_text_without_evidence_is_unknown(service):
    numbers = post(service, model="unknown", response_format="verbose_json").json()

    assert (numbers["language"], numbers["languages"]) == ("unknown", [])
    assert not {"language_source", "language_probability"} & set(numbers)


@settings(deadline=None)  # the first text loads the detector
@given(st.text(max_size=60), st.lists(st.sampled_from(sorted(NAMES)), max_size=4, unique=True))
def test_any_text_has_one_of_the_languages_that_it_can_be_or_none(text, among):
    whole, each = detect_languages([text, PHRASES[0]], among)

    for told in (whole, *each):
        assert told is None or (told.language in (among or NAMES) and 0 <= told.probability <= 1)


def test_a_segment_too_short_to_detect_has_the_language_of_the_rest():
    whole, (long, short, empty) = detect_languages([PHRASES[1], "ok", " "], ["de", "en", "fr"])

    assert whole is not None
    assert whole.language == long.language == short.language == "en"
    assert short.probability < 0.5
    assert empty is None
