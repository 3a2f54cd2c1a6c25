"""What each family of models hears fits the schema that OpenAI publishes, field by field."""

import json

import numpy as np
import pytest
from openai.types.audio import TranscriptionVerbose
from pydantic import TypeAdapter

from models import load_model
from service.dispatch.cut_recording import Coverage
from service.engine.process import _transcript
from service.http.formats import Written, render
from tests.models import golden_data

FAMILIES = (
    *("canary-small", "fastconformer-ctc-bpe", "fastconformer-rnnt-bpe", "fastconformer-tdt-bpe"),
    *("hybrid-rnnt-ctc-bpe", "hybrid-tdt-ctc-bpe", "jasper-small", "quartznet-small", "variant-citrinet"),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_decoder_fits_openais_schema(golden, family):
    model = load_model(golden / family / "model.nemo")
    clip = golden_data.clip("awb-4s")
    has_times = model.info()["capabilities"].get("word_timestamps", True)
    for decoder in model.decoders:
        (heard,) = model.recognize_batch(*model.batch([clip]), decoder=decoder).timed_texts()

        body = render(
            _transcript(heard),
            seconds=len(clip) / model.sample_rate,
            response_format="verbose_json",
            granularities=("word", "segment"),
            written=Written("transcribe", None, has_times),
            spellings=None,
            speech=np.ones(200, np.float32),
            coverage=Coverage(4.0, 0.0, 0.0),
        ).body

        verbose = TypeAdapter(TranscriptionVerbose).validate_json(body, strict=True)
        assert verbose.text == heard.text
        assert None not in json.loads(body).values()
