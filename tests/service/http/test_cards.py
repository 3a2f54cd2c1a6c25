"""What `/v1/models` says of a model, by its family."""

from tests.service.serving import serving


def cards(service) -> dict:
    return {one["id"]: one for one in service.client.get("/v1/models").json()["data"]}


def test_a_card_lists_the_models_abilities():
    with serving(model="first.nemo,second=polyglot-ctc.nemo", max_audio_seconds=600.0) as service:
        listed = cards(service)
        one = service.client.get("/v1/models/second").json()

    assert one == listed["second"]
    assert one["steno"] == {
        "state": "ready",
        "abilities": {
            "family": "stub",
            "parameters": None,
            "tasks": ["transcribe"],
            "languages": {"spoken": ["de", "en", "fr"], "written": ["de", "en", "fr"]},
            "language_source": "text",
            "decoders": ["tdt", "ctc"],
            "word_timestamps": True,
            "punctuation": "never",
            "itn": False,
            "vocabulary": None,
            "sample_rate": 16_000,
            "longest_recording_seconds": 600.0,
            "longest_utterance_seconds": 40.0,
            "dtype": "float32",
            "device": "none",
        },
    }
    assert listed["first"]["steno"]["abilities"]["languages"] == {"spoken": [], "written": []}


def test_a_card_has_the_languages_of_the_settings():
    with serving(languages="fi,et") as service:
        abilities = cards(service)["stub"]["steno"]["abilities"]

    assert abilities["languages"]["spoken"] == ["fi", "et"]


def test_the_card_of_a_loading_model_has_its_state_only():
    with serving(model="endless", wait_ready=False) as service:
        assert cards(service)["endless"]["steno"] == {"state": "loading", "abilities": None}
