"""`steno serve` with a Canary checkpoint and a language identifier: answers are those of the identified languages."""

import concurrent.futures

import pytest

from models import load_model
from tests.models import golden_data
from tests.service.serving import form, steno_serve, wav
from transcripts.spoken_language import LanguageDecision

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoints(golden):
    return tuple(golden / name / "model.nemo" for name in ("canary-small", "identifier-statistics"))


@pytest.fixture(scope="module")
def model(checkpoints):
    return load_model(checkpoints[0], language_identifier=checkpoints[1])


@pytest.fixture(scope="module")
def service(checkpoints, tmp_path_factory):
    log = tmp_path_factory.mktemp("identifying") / "log"
    flags = ("--model", f"canary={checkpoints[0]}", "--language-identifier", f"finder={checkpoints[1]}")
    with steno_serve(log, *flags, "--dtype", "float32") as served:
        yield served


def post(service, clip: str, path: str = "transcriptions", **fields: str):
    return service.client.post(f"/v1/audio/{path}", **form(wav(golden_data.clip(clip)), **fields))


def test_requests_at_once_are_each_answered_in_the_language_of_their_audio(service, model):
    with concurrent.futures.ThreadPoolExecutor(len(golden_data.CLIPS)) as pool:
        answers = list(pool.map(lambda clip: post(service, clip, language="auto").json(), golden_data.CLIPS))

    for clip, answer in zip(golden_data.CLIPS, answers, strict=True):
        samples = golden_data.clip(clip)
        (probabilities,) = model.language_identifier.identify([samples])
        language, probability = LanguageDecision(["de", "en"]).add(probabilities, len(samples) / 16_000)
        (offline,) = model.transcribe([samples], language=language)
        assert answer["text"] == offline.text
        assert (answer["languages"], answer["language_source"]) == ([{"code": language}], "audio")
        assert answer["language_probability"] == pytest.approx(probability, abs=1e-4)
    assert len({answer["language"] for answer in answers}) == 2
