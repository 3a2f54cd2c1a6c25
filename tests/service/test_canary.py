"""`steno serve` with a Canary checkpoint: answers equal the model's offline, and unsupported options are refused."""

import concurrent.futures

import pytest

from models import load_model
from tests.models import golden_data
from tests.service.serving import ServerProcess, form, steno_serve, wav

pytestmark = pytest.mark.slow

CLIP = "awb-4s"
ASKED = [
    {},
    {"language": "en", "target_language": "de"},
    {"language": "de", "target_language": "en"},
    {"language": "en", "punctuation": "false"},
    {"language": "en", "itn": "true"},
]
FLAGS = {"true": True, "false": False}


@pytest.fixture(scope="module")
def checkpoint(golden):
    return golden / "canary-small" / "model.nemo"


@pytest.fixture(scope="module")
def model(checkpoint):
    return load_model(checkpoint)


@pytest.fixture(scope="module")
def service(checkpoint, tmp_path_factory):
    with steno_serve(tmp_path_factory.mktemp("canary") / "log", "--model", str(checkpoint)) as served:
        yield served


def post(service: ServerProcess, path: str = "transcriptions", clip: str = CLIP, **fields: str):
    return service.client.post(f"/v1/audio/{path}", **form(wav(golden_data.clip(clip)), **fields))


def test_requests_at_once_are_each_answered_as_they_ask(service, model):
    with concurrent.futures.ThreadPoolExecutor(len(ASKED)) as pool:
        answers = list(pool.map(lambda asked: post(service, **asked), ASKED))

    for asked, answer in zip(ASKED, answers, strict=True):
        options = {key: FLAGS.get(value, value) for key, value in asked.items()}
        (offline,) = model.transcribe([golden_data.clip(CLIP)], **options)
        assert answer.json()["text"] == offline.text
    assert len({answer.json()["text"] for answer in answers}) > 2


def test_a_translation_is_into_english_from_the_only_other_language(service, model):
    answer = post(service, "translations", response_format="verbose_json")

    (offline,) = model.transcribe([golden_data.clip(CLIP)], language="de", target_language="en", timestamps=True)
    body = answer.json()
    assert (answer.status_code, body["text"]) == (200, offline.text)
    assert (body["task"], body["language"]) == ("translate", "english")


def test_words_and_subtitles_have_the_times_that_the_model_wrote(service, model):
    (offline,) = model.transcribe([golden_data.clip(CLIP)], timestamps=True)
    words = post(service, response_format="verbose_json", **{"timestamp_granularities[]": "word"}).json()["words"]
    subtitles = post(service, response_format="srt").text

    assert [(word["word"], word["start"], word["end"]) for word in words] == [
        (word.text, word.start, word.end) for word in offline.words
    ]
    assert subtitles.startswith("1\n00:00:00,000 --> 00:00:04,000\n")


def test_with_an_aligner_words_have_times_and_translations_have_subtitles(checkpoint, golden, tmp_path):
    aligner = golden / "fastconformer-ctc-bpe" / "model.nemo"
    (offline,) = load_model(checkpoint, aligner=aligner).transcribe([golden_data.clip(CLIP)], timestamps=True)
    with steno_serve(tmp_path / "log", "--model", str(checkpoint), "--aligner", str(aligner)) as aligned:
        fields = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
        words = post(aligned, **fields).json()["words"]
        subtitles = post(aligned, response_format="srt", language="en", target_language="de")

    assert [(word["word"], word["start"], word["end"]) for word in words] == [
        (word.text, pytest.approx(word.start, abs=1e-3), pytest.approx(word.end, abs=1e-3)) for word in offline.words
    ]
    assert any(word["end"] > 0 for word in words)
    assert (subtitles.status_code, subtitles.text[:24]) == (200, "1\n00:00:00,000 --> 00:00")
