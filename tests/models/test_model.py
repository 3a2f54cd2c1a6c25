"""The public interface of a model: its inputs, its results and its errors."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import PromptError, load_model
from models.checkpoint import read_checkpoint
from models.device_model import batches
from models.network import Network
from tests.conftest import GOLDEN
from tests.models import golden_data as golden
from tests.models.checkpoint.nemo_files import archive, golden_document, golden_members, put, with_config
from tests.models.companions import assert_close_in_bfloat16


@pytest.fixture
def model():
    return golden.model("hybrid-tdt-ctc-bpe")


def test_info_describes_the_model(model):
    assert model.sample_rate == 16_000
    assert model.seconds_per_frame == 0.08
    assert model.decoders == ("tdt", "ctc")
    assert model.device == torch.device("cpu")
    assert model.model.dtype == torch.float32


def test_info_is_ready_for_json(model):
    info = model.info()

    assert json.loads(json.dumps(info)) == info
    assert info["class"] == "EncDecHybridRNNTCTCBPEModel"
    published = Network.without_weights(
        read_checkpoint(GOLDEN / "hybrid-tdt-ctc-bpe" / "model.nemo").config
    )  # what it computes with is folded
    assert info["parameters"] == sum(parameter.numel() for parameter in published.parameters())
    assert info["vocabulary"] == {"kind": "sentencepiece", "size": 128}
    assert info["languages"] is None


def test_no_utterances_are_no_hypotheses(model):
    assert model.transcribe([]) == []
    assert model.recognize_batch(torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64)).transcripts() == []


@pytest.mark.parametrize(("name", "decoder"), golden.DECODERS)
@pytest.mark.parametrize("samples", [0, 1, 159, 160, 161])
def test_a_few_samples_give_a_transcript_alone_and_beside_speech(name, decoder, samples):
    model = golden.model(name)
    short = golden.clip("slt-1s")[:samples]

    (alone,) = model.transcribe([short], decoder=decoder)
    beside, speech = model.transcribe([short, golden.clip("slt-1s")], decoder=decoder)

    assert alone.tokens == beside.tokens
    assert alone.text == beside.text
    if samples < 160:
        assert (alone.text, alone.tokens, alone.words) == ("", [], [])
    assert speech.tokens == golden.transcript(name, "slt-1s", decoder)["tokens"]


def test_hypotheses_come_in_the_order_given_whatever_the_batches(model):
    clips = golden.clips()
    expected = [golden.transcript("hybrid-tdt-ctc-bpe", name, "tdt")["tokens"] for name in golden.CLIPS]

    for batch_seconds in (0.0, 5.0, 30.0, 1e9):
        hypotheses = model.transcribe(clips[::-1], batch_seconds=batch_seconds)
        assert [hypothesis.tokens for hypothesis in hypotheses] == expected[::-1]


@given(lengths=st.lists(st.integers(0, 100), max_size=30), capacity=st.integers(0, 400))
@settings(max_examples=200, deadline=None)
def test_batches_take_each_utterance_once_and_hold_no_more_than_they_may(lengths, capacity):
    formed = list(batches(lengths, capacity))

    assert sorted(index for batch in formed for index in batch) == list(range(len(lengths)))
    for batch in formed:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= capacity


def test_a_decoder_that_the_model_lacks_is_refused_with_those_it_has(model):
    with pytest.raises(ValueError, match=r"'rnnt'.*tdt, ctc"):
        model.transcribe([], decoder="rnnt")


@pytest.mark.parametrize(
    ("utterance", "told"),
    [
        (np.zeros(160), "float64"),
        (np.zeros(160, dtype=np.int16), "int16"),
        (np.zeros((160, 2), dtype=np.float32), r"\(160, 2\)"),
        (np.array([0, np.nan], dtype=np.float32), "infinite or not numbers"),
        (np.array([0, np.inf], dtype=np.float32), "infinite or not numbers"),
        ([0.0, 0.1], "list"),
    ],
    ids=["float64", "int16", "stereo", "nan", "inf", "list"],
)
def test_what_is_not_mono_float32_and_finite_is_refused_by_its_place(model, utterance, told):
    with pytest.raises(ValueError, match=f"utterance 1 .*{told}"):
        model.transcribe([golden.clip("slt-1s"), utterance])


def test_features_of_nothing_are_refused(model):
    with pytest.raises(ValueError, match="no utterance"):
        model.features([])


def test_each_utterance_may_name_the_language_that_the_text_is_to_have(model):
    clips = [golden.clip("slt-1s")] * 2

    assert model.transcribe(clips, language=["de", "de"], target_language="de") == model.transcribe(clips)
    with pytest.raises(PromptError, match="does not translate"):
        model.transcribe(clips, language=["de", None], target_language="de")


def test_an_array_that_is_not_contiguous_is_taken(model):
    clip = golden.clip("slt-1s")
    strided = np.stack([clip, clip], axis=1)[:, 0]

    assert model.transcribe([strided])[0].tokens == model.transcribe([clip])[0].tokens


def test_nothing_is_kept_for_a_gradient(model):
    encoded, _ = model.encode(*model.features([golden.clip("slt-1s")]))

    assert not encoded.requires_grad
    assert not any(parameter.requires_grad for parameter in model.model.network.parameters())
    assert not model.model.network.training


@pytest.mark.parametrize("device", golden.DEVICES)
@pytest.mark.parametrize("name", golden.MODELS)
def test_bfloat16_computes_in_bfloat16_from_features_in_float32(name, device):
    model = load_model(GOLDEN / name / "model.nemo", device, torch.bfloat16)

    assert_close_in_bfloat16(golden.model(name), model)
    for decoder in model.decoders:
        (hypothesis,) = model.transcribe([golden.clip("slt-1s")], decoder=decoder)
        assert all(0 < confidence <= 1 for confidence in hypothesis.token_confidence)


def test_local_attention_by_option_equals_that_of_a_checkpoint_trained_with_it(tmp_path):
    document = golden_document("fastconformer-ctc-bpe")
    put(document, "encoder.self_attention_model", "rel_pos_local_attn")
    put(document, "encoder.att_context_size", [3, 3])
    asking = archive(tmp_path / "model.nemo", with_config(golden_members("fastconformer-ctc-bpe"), document))
    path = GOLDEN / "fastconformer-ctc-bpe" / "model.nemo"

    models = [load_model(path, attention_context=frames) for frames in (3, 10**6, None)]
    local, wide, full = (model.encode(*model.features([golden.clip("slt-1s")]))[0] for model in models)
    own = load_model(asking)
    asked, _ = own.encode(*own.features([golden.clip("slt-1s")]))

    torch.testing.assert_close(local, asked)
    torch.testing.assert_close(wide, full, rtol=1e-4, atol=1e-4)
    assert (local - full).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "context", "told"), [("jasper-small", 128, "for Conformers"), ("fastconformer-ctc-bpe", 0, "above 0")]
)
def test_local_attention_is_refused_where_it_means_nothing(name, context, told):
    with pytest.raises(ValueError, match=told):
        load_model(GOLDEN / name / "model.nemo", attention_context=context)


def test_a_hypothesis_is_ready_for_json(model):
    (hypothesis,) = model.transcribe([golden.clip("espeak-2s")])

    fields = hypothesis.as_dict()

    assert json.loads(json.dumps(fields))["text"] == hypothesis.text
    assert {"text", "tokens", "frames", "durations", "token_confidence", "words"} == set(fields)


@pytest.mark.teacher
def test_apostrophes_are_no_punctuation(teacher):
    assert load_model(teacher).info()["capabilities"]["punctuation"] is False
    assert golden.model("hybrid-tdt-ctc-bpe").info()["capabilities"]["punctuation"] is True
