"""A form's options reach the model, and the error for an option that the model lacks names the field."""

import pytest

from service.dispatch.catalog import ServedModel
from service.engine.protocol import Capabilities, ModelInfo, Ready
from service.http.errors import RequestError
from service.http.transcription.form import TranscriptionForm
from service.http.transcription.loaded_model import LoadedModel
from service.http.transcription.options import into_english, prompt_of
from transcripts.prompt import DEFAULT_PROMPT, Prompt


def model(info: ModelInfo) -> LoadedModel:
    return LoadedModel(ServedModel("stub", "stub.nemo"), Ready("stub", info, [], 16_000, 60.0, 1, 1.0, 0, 0.0, 0.0), ())


def able(decoder: str, **lacks: bool) -> LoadedModel:
    capabilities = {"translation": True, "word_timestamps": True, "punctuation": True, "itn": True} | lacks
    return model(ModelInfo("stub", "none", "float32", decoders=[decoder], capabilities=Capabilities(**capabilities)))


CANARY = able("aed")
WITHOUT_TIMES = able("aed", word_timestamps=False)
CTC = able("ctc", translation=False, itn=False)


def fields(**given) -> TranscriptionForm:
    return TranscriptionForm(file=b"", model="whisper-1", **given)


def refusal(function, *arguments) -> tuple[str, str]:
    with pytest.raises(RequestError) as caught:
        function(*arguments)
    assert caught.value.status == 400
    return str(caught.value.code), caught.value.param


@pytest.mark.parametrize(
    ("given", "prompt"),
    [
        ({}, Prompt("en")),
        ({"language": "de"}, Prompt("de")),
        ({"language": "en", "target_language": "de"}, Prompt("en", "de")),
        ({"punctuation": False}, Prompt("en", punctuation=False)),
        ({"itn": True}, Prompt("en", itn=True)),
        ({"response_format": "text"}, Prompt("en")),
        ({"response_format": "srt"}, Prompt("en", timestamps=True)),
        ({"response_format": "verbose_json"}, Prompt("en", timestamps=True)),
    ],
    ids=str,
)
def test_a_canary_model_gets_the_options_of_the_form(given, prompt):
    assert prompt_of(fields(**given), CANARY, "en") == prompt


def test_other_models_get_no_options():
    assert prompt_of(fields(language="en", target_language="en", response_format="srt"), CTC, None) is DEFAULT_PROMPT
    assert prompt_of(fields(response_format="vtt"), model(ModelInfo("stub", "none", "float32")), None) is DEFAULT_PROMPT


def test_a_language_of_a_checkpoint_that_has_no_name_is_listed_by_its_code():
    info = ModelInfo("stub", "none", "float32", decoders=["aed"], languages=["en", "sh"])

    with pytest.raises(RequestError, match=r"it speaks 'en' \(english\), 'sh'\.$"):
        model(info).check_language("de")


def test_a_model_without_times_is_not_asked_for_them():
    assert prompt_of(fields(response_format="verbose_json"), WITHOUT_TIMES, "en") == Prompt("en")


@pytest.mark.parametrize(
    ("given", "model", "code", "param"),
    [
        ({"target_language": "de"}, CTC, "unsupported_value", "target_language"),
        ({"language": "en", "target_language": "de"}, CTC, "unsupported_value", "target_language"),
        ({"punctuation": False}, CTC, "unsupported_value", "punctuation"),
        ({"itn": True}, CTC, "unsupported_value", "itn"),
        ({"target_language": "de"}, CANARY, "missing_required_parameter", "language"),
        ({"language": "fr", "target_language": "de"}, CANARY, "unsupported_value", "target_language"),
        ({"response_format": "srt"}, WITHOUT_TIMES, "unsupported_value", "response_format"),
        ({"response_format": "vtt"}, WITHOUT_TIMES, "unsupported_value", "response_format"),
        (
            {"response_format": "verbose_json", "timestamp_granularities": ["word"]},
            WITHOUT_TIMES,
            "unsupported_value",
            "timestamp_granularities",
        ),
    ],
    ids=str,
)
def test_what_a_model_cannot_do_is_refused_by_its_field(given, model, code, param):
    assert refusal(prompt_of, fields(**given), model, "en") == (code, param)


def test_a_translation_is_from_the_only_foreign_language_or_the_one_named():
    assert into_english(fields(), ["en", "de"]).language == "de"
    assert into_english(fields(language="fr"), ["en", "de", "fr"]).language == "fr"
    assert into_english(fields(language="fr"), ["en", "fr"]).target_language == "en"
    assert into_english(fields(languages=["de", "en", "de"]), ["en", "de", "fr"]).language == "de"


def test_a_translation_from_one_of_several_languages_must_name_it():
    assert refusal(into_english, fields(), ["en", "de", "fr"]) == ("missing_required_parameter", "language")
    with pytest.raises(RequestError, match=r"to one of de, fr\."):
        into_english(fields(languages=["de", "fr"]), ["en", "de", "fr", "es"])


def test_a_translation_is_into_english():
    assert refusal(into_english, fields(target_language="de"), ["en", "de"]) == (
        "unsupported_value",
        "target_language",
    )
