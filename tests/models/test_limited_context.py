"""Models for streams transcribe whole recordings as NeMo does, with each of their contexts and prompts."""

import json
import re
from functools import cache

import pytest
from safetensors.torch import load_file

from models import PromptError, load_model
from tests.conftest import FACTS
from tests.models import golden_data as golden
from tests.models.companions import assert_close_in_bfloat16

pytestmark = pytest.mark.facts("golden-streaming")

FOLDER = FACTS / "golden-streaming"
TAG = re.compile(r"\s*<[a-z]{2}-[A-Z]{2}>|<EOU>")
# What the models are loaded with and asked for, where NeMo's results of it are recorded.
RUNS = [
    ("limited-conformer-ctc", None, None),
    ("streaming-eou-rnnt", None, None),
    ("unified-rnnt", None, None),
    ("stateless-tdt", None, None),
    *(("streaming-hybrid", context, None) for context in (None, "70,6", "70,1", "70,0")),
    *(("streaming-multi-rnnt", context, None) for context in (None, "70,6", "70,1", "70,0")),
    *(("streaming-small-rnnt", context, None) for context in (None, "28,1", "28,0", "28,13")),
    *(("streaming-prompt-rnnt", context, None) for context in (None, "56,0", "56,6", "56,13")),
    *(("streaming-prompt-rnnt", None, prompt) for prompt in ("de-DE", "en-US")),
]


@cache
def model(name, context):
    return load_model(FOLDER / name / "model.nemo", attention_context=context)


def recorded(name, context, prompt):
    facts = json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))
    if context:
        return facts["contexts"][context]
    return facts["prompts"][prompt] if prompt else {clip: found["alone"] for clip, found in facts["clips"].items()}


@pytest.mark.parametrize(("name", "context", "prompt"), RUNS)
def test_frames_tokens_and_texts_are_nemos_alone_and_in_a_batch(name, context, prompt):
    found, wanted = model(name, context), recorded(name, context, prompt)
    language = prompt and prompt.partition("-")[0]
    tensors = load_file(FOLDER / name / "expected.safetensors")

    for decoder in found.decoders:
        together = found.transcribe(golden.clips(), decoder=decoder, language=language)
        for clip, in_batch in zip(golden.CLIPS, together, strict=True):
            head = wanted[clip]["ctc" if decoder == "ctc" else "transducer"]
            (alone,) = found.transcribe([golden.clip(clip)], decoder=decoder, language=language)
            for one in (alone, in_batch):
                assert one.tokens == head["tokens"]
                assert one.frames == head.get("first_frames", head["timestep"])
                assert one.text == TAG.sub("", head["text"])
                assert not any("<" in word.text for word in one.words)
    for clip in golden.CLIPS:
        key = f"context/{context}/{clip}/encoder" if context else f"alone/{clip}/encoder"
        if key in tensors:
            encoded, (length,) = found.encode(*found.features([golden.clip(clip)]))
            assert encoded[0, :length].shape == tensors[key].shape
            assert (encoded[0, :length] - tensors[key]).abs().max() < golden.encoder_bound(tensors[key], clip)


@pytest.mark.parametrize("context", [None, "28,1", "28,0", "28,13"])
def test_a_folder_of_transformers_is_the_same_model(context):
    """Its ``generate`` was recorded with the first context; NeMo's tokens, with all."""
    folder = FOLDER / "transformers-streaming-small-rnnt"
    blank = json.loads((folder / "config.json").read_text(encoding="utf-8"))["blank_token_id"]
    generated = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["generated"]
    wanted = recorded("streaming-small-rnnt", context, None)

    together = load_model(folder, attention_context=context).transcribe(golden.clips())

    for clip, found in zip(golden.CLIPS, together, strict=True):
        assert found.tokens == wanted[clip]["transducer"]["tokens"]
        assert found.frames == wanted[clip]["transducer"]["timestep"]
        if context is None:
            assert found.tokens == [token for token in generated[clip] if token != blank]


def test_the_tags_of_languages_are_told_apart_from_other_tags():
    tagged, ending = (model(name, None).model for name in ("streaming-prompt-rnnt", "streaming-eou-rnnt"))

    assert set(tagged.language_tags.values()) == {"de", "en"}
    assert {tagged.vocabulary.pieces[token] for token in tagged.language_tags} >= {"<de-DE>", "<en-US>"}
    assert ending.language_tags == {}


def test_rows_with_different_prompts_share_a_batch():
    prompted, clips = model("streaming-prompt-rnnt", None), golden.clips()[:3]
    languages = ["de", None, "en"]

    together = prompted.transcribe(clips, language=languages)

    alone = [prompted.transcribe([clip], language=one)[0] for clip, one in zip(clips, languages, strict=True)]
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    assert prompted.info()["languages"] == ["de", "en", "es", "fr"]
    with pytest.raises(PromptError):
        prompted.transcribe(clips, language="pl")


def test_a_context_that_it_was_not_trained_with_is_refused_by_those_it_was():
    with pytest.raises(ValueError, match="70,13; 70,6; 70,1; 70,0"):
        model("streaming-multi-rnnt", "70,2")


def test_a_clip_longer_than_a_piece_of_the_subsampling_is_encoded_as_on_a_gpu():
    """A CPU shortens features in pieces; all at once, as a GPU does, gives the same frames."""
    import torch

    subsampling = model("streaming-multi-rnnt", None).model.network.encoder.subsampling
    with torch.no_grad():
        for frames in (511, 512, 513, 514, 1040):
            features = torch.randn(1, 128, frames)
            pieces = subsampling._alone(features[0])
            assert torch.allclose(pieces, subsampling._stacked(features)[0], atol=1e-5)


@pytest.mark.parametrize(("name", "context"), [(name, context) for name, context, prompt in RUNS if prompt is None])
def test_in_bfloat16_frames_are_close_to_those_in_float32(name, context):
    rounded = load_model(FOLDER / name / "model.nemo", dtype="bfloat16", attention_context=context)

    assert_close_in_bfloat16(model(name, context), rounded)
