"""Each answer, of each decoder of each family of models, fits the schema that OpenAI's client was made from."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from openai.types import Model
from openai.types.audio import (
    Transcription,
    TranscriptionStreamEvent,
    TranscriptionVerbose,
    Translation,
    TranslationVerbose,
)
from pydantic import TypeAdapter

from tests.models import golden_data
from tests.service.serving import form, steno_serve, wav

pytestmark = pytest.mark.slow

FAMILIES = {
    "canary-small": ["aed"],
    "fastconformer-ctc-bpe": ["ctc"],
    "fastconformer-rnnt-bpe": ["rnnt"],
    "fastconformer-tdt-bpe": ["tdt"],
    "hybrid-rnnt-ctc-bpe": ["rnnt", "ctc"],
    "hybrid-tdt-ctc-bpe": ["tdt", "ctc"],
    "jasper-small": ["ctc"],
    "quartznet-small": ["ctc"],
    "variant-citrinet": ["ctc"],
}
DECODERS = [(family, decoder) for family, decoders in FAMILIES.items() for decoder in decoders]
CLIP = wav(golden_data.clip("slt-1s"))
TWO_SIDES = wav(np.stack([golden_data.clip("slt-1s"), golden_data.clip("slt-1s")[::-1]], axis=1))
BOTH_TIMES = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]}
# Of these fields, which are Steno's own, null says that there is none.
MAY_BE_NULL = {"confidence"}


@pytest.fixture(scope="module")
def service(golden, tmp_path_factory):
    entries = ",".join(f"{family}={golden / family / 'model.nemo'}" for family in FAMILIES)
    with steno_serve(tmp_path_factory.mktemp("families") / "log", "--model", entries) as served:
        yield served


@pytest.fixture(params=DECODERS, ids="-".join)
def post(request, service):
    """Send a recording to one decoder of one model."""
    model, decoder = request.param

    def send(path: str = "transcriptions", file: bytes = CLIP, **fields):
        answer = service.client.post(f"/v1/audio/{path}", **form(file, model=model, decoder=decoder, **fields))
        assert answer.status_code == 200, answer.text
        return answer

    return send


def fits(schema: Any, body: bytes | str) -> Any:
    """Read a body as the strictest of clients does."""
    assert not list(nulls(json.loads(body))), body
    return TypeAdapter(schema).validate_json(body, strict=True)


def nulls(value: Any, name: str = "") -> Iterator[str]:
    """The names of fields that are null."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from nulls(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from nulls(inner, name)
    elif value is None and name not in MAY_BE_NULL:
        yield name


def events(answer) -> list[str]:
    return [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]


def test_an_answer_has_nothing_of_the_recording_before_it(post):
    silence = wav(np.zeros(16_000, np.float32))

    answers = [post(file=file, **{"include[]": "logprobs"}).json() for file in (silence, CLIP, silence)]

    before, speech, after = answers
    assert before == after
    assert speech != after


@pytest.mark.parametrize("file", [CLIP, TWO_SIDES], ids=["mixed", "channels"])
def test_answers_fit_in_every_format(post, file):
    options = {"multichannel": "true"} if file is TWO_SIDES else {}

    plain = fits(Transcription, post(file=file, **options).content)
    told = fits(Transcription, post(file=file, language="auto", **{"include[]": "logprobs"}, **options).content)
    timed = fits(TranscriptionVerbose, post(file=file, response_format="verbose_json", **options).content)
    texts = [post(file=file, response_format=each, **options) for each in ("text", "srt", "vtt")]

    assert told.text == plain.text
    assert timed.duration == pytest.approx(1, abs=0.2)
    assert timed.segments
    assert {answer.headers["content-type"] for answer in texts} == {"text/plain; charset=utf-8"}


@pytest.mark.parametrize("file", [CLIP, TWO_SIDES], ids=["mixed", "channels"])
@pytest.mark.parametrize(
    "options",
    [{"include[]": "logprobs", "language": "auto"}, BOTH_TIMES, {"response_format": "vtt"}],
    ids=["json", "verbose", "vtt"],
)
def test_events_fit(post, file, options):
    multichannel = {"multichannel": "true"} if file is TWO_SIDES else {}

    *parts, done = [
        fits(TranscriptionStreamEvent, event)
        for event in events(post(file=file, stream="true", **options, **multichannel))
    ]

    assert done.type == "transcript.text.done"
    assert "".join(part.delta for part in parts if part.type == "transcript.text.delta") == done.text


@pytest.mark.parametrize("options", [{}, BOTH_TIMES], ids=["json", "verbose"])
def test_translations_fit(service, options):
    schema = TranslationVerbose if options else Translation
    answer = service.client.post("/v1/audio/translations", **form(CLIP, model="canary-small", language="de", **options))

    assert answer.status_code == 200, answer.text
    fits(schema, answer.content)


def test_models_fit(service):
    listed = service.client.get("/v1/models").json()

    assert [fits(Model, json.dumps(model)).id for model in listed["data"]] == list(FAMILIES)
