"""`chunking_strategy` in every form that clients send."""

import io
import json

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.datastructures import FormData, UploadFile

from audio.segment.segmenter import SegmentRule
from service.http.errors import RequestError
from service.http.transcription.chunking import ServerVad
from service.http.transcription.form import TranscriptionForm, form_schema


def strategy(*parts: tuple[str, str]):
    return TranscriptionForm.parse(
        FormData([("file", UploadFile(io.BytesIO(b""))), ("model", "m"), *parts])
    ).chunking_strategy


@pytest.mark.parametrize(
    "parts",
    [
        [],
        *([("chunking_strategy", text)] for text in ("auto", "", '"auto"', '{"type": "auto"}', "null")),
        [("chunking_strategy[type]", "auto")],
    ],
)
def test_unset_and_auto_leave_it_to_the_service(parts):
    assert strategy(*parts) is None


@pytest.mark.parametrize("value", ["auto", "none", None, {"type": "server_vad", "threshold": 0.3}])
def test_the_document_describes_what_is_accepted(value):
    strategy(("chunking_strategy", json.dumps(value)))
    jsonschema.validate(value, form_schema()["properties"]["chunking_strategy"])


@pytest.mark.parametrize(
    "parts",
    [
        [("chunking_strategy", '{"type": "server_vad", "threshold": 0.3, "silence_duration_ms": 600}')],
        [
            ("chunking_strategy[type]", "server_vad"),
            ("chunking_strategy[threshold]", "0.3"),
            ("chunking_strategy[silence_duration_ms]", "600"),
            ("chunking_strategy[prefix_padding_ms]", ""),
        ],
    ],
)
def test_an_object_comes_as_json_or_in_parts_and_the_rest_is_openais(parts):
    assert strategy(*parts).rule(30.0) == SegmentRule(longest=30.0, pause=0.6, before=0.3, after=0.15, threshold=0.3)


@pytest.mark.parametrize("text", ["none", '"none"', '{"type": "none"}'])
def test_none_transcribes_all_audio(text):
    assert strategy(("chunking_strategy", text)).rule(30.0).threshold == 0


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ([("chunking_strategy", "manual")], "chunking_strategy"),
        ([("chunking_strategy", "[" * 100_000)], "chunking_strategy"),
        ([("chunking_strategy", "[1]")], "chunking_strategy"),
        ([("chunking_strategy", '{"type": "semantic_vad"}')], "chunking_strategy.type"),
        ([("chunking_strategy", '{"threshold": 0.5}')], "chunking_strategy.type"),
        ([("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "nan")], "threshold"),
        ([("chunking_strategy[type]", "server_vad"), ("chunking_strategy[prefix_padding_ms]", "-1")], "prefix"),
        ([("chunking_strategy", '{"type": "server_vad", "silence": 1}')], "chunking_strategy.silence"),
    ],
)
def test_anything_else_is_an_error_that_names_the_field(parts, named):
    with pytest.raises(RequestError, match=named) as error:
        strategy(*parts)

    assert error.value.param == "chunking_strategy"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30) | JSON.map(json.dumps))
@example("none")
def test_any_value_is_understood_or_refused(value):
    try:
        understood = strategy(("chunking_strategy", value))
    except RequestError:
        return
    assert understood is None or isinstance(understood, ServerVad)
