"""A released checkpoint with trained weights gives what NeMo gives on real recordings."""

import json

import pytest

from models import load_model

pytestmark = [pytest.mark.slow, pytest.mark.teacher, pytest.mark.speech]

ALONE = 6


@pytest.fixture(scope="module")
def expected(teacher):
    return json.loads((teacher.parent / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def recordings(expected, speech_dir):
    import soundfile  # a GPU machine may have none, and collects this file

    return [soundfile.read(speech_dir / name, dtype="float32")[0] for name in expected]


def told(hypothesis):
    return {"tokens": hypothesis.tokens, "frames": hypothesis.frames, "text": hypothesis.text}


def test_every_recording_of_the_dev_split_is_transcribed_as_nemo_does(teacher, expected, recordings):
    model = load_model(teacher)
    wanted = [{key: record[key] for key in ("tokens", "frames", "text")} for record in expected.values()]

    together = [told(hypothesis) for hypothesis in model.transcribe(recordings)]
    alone = [told(model.transcribe([recording])[0]) for recording in recordings[:ALONE]]

    assert together == wanted
    assert alone == wanted[:ALONE]
