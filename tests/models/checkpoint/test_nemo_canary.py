"""Canary checkpoints: laid out as released ones they load and write; what contradicts itself is refused by name."""

import io
import json

import numpy as np
import pytest
import torch
import yaml

from models import Prompt, load_model
from models.checkpoint.nemo.config import parse_nemo_config
from models.checkpoint.prompted import prompted
from models.errors import TensorMismatchError, UnsupportedValueError
from models.text.prompt_writer import required_pieces
from tests.models.canary import prompt_tokens
from tests.models.checkpoint import canary_like
from tests.models.checkpoint.nemo_files import CONFIGS, WEIGHTS, archive, blamed, drop, put, refusal, saved

EXPECTED = {
    "canary_1b_like": {"languages": ["en", "de", "es", "fr"], "word_timestamps": False, "kind": "aggregate"},
    "canary_flash_like": {"languages": ["en", "de", "es", "fr"], "word_timestamps": True, "kind": "aggregate"},
    "canary_unified_like": {"languages": ["de", "en", "es", "fr"], "word_timestamps": True, "kind": "sentencepiece"},
}
NOISE = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
ALIGNER = {"timestamps_asr_model_config.yaml": b"{}", "timestamps_asr_model_weights.ckpt": b"\0" * 1000}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_loads_and_writes(name, tmp_path):
    model = load_model(archive(tmp_path / "model.nemo", canary_like.members(name)))

    info = json.loads(json.dumps(model.info()))
    assert info["decoders"] == ["aed"]
    assert info["languages"] == EXPECTED[name]["languages"]
    assert info["vocabulary"]["kind"] == EXPECTED[name]["kind"]
    assert info["capabilities"]["word_timestamps"] is EXPECTED[name]["word_timestamps"]
    assert info["capabilities"]["translation"] is True
    (hypothesis,) = model.transcribe([NOISE], language="en", target_language="de")
    assert len(hypothesis.tokens) == len(hypothesis.token_confidence)
    assert len(hypothesis.tokens) <= 64


def test_a_vocabulary_in_one_piece_encodes_the_prompt_as_one_text(tmp_path):
    path = archive(tmp_path / "model.nemo", canary_like.members("canary_unified_like"))

    all_pieces = load_model(path).model.vocabulary.pieces
    pieces = [all_pieces[token] for token in prompt_tokens(path, Prompt())]
    assert pieces[:3] == ["▁", "<|startofcontext|>", "<|startoftranscript|>"]
    assert len(pieces) == 10


def test_a_second_model_for_times_that_cannot_be_read_is_left_out_and_words_have_none(tmp_path, caplog):
    members = canary_like.members("canary_unified_like") | ALIGNER

    info = load_model(archive(tmp_path / "model.nemo", members)).info()

    assert info["capabilities"]["word_timestamps"] is False
    assert "aligner" in caplog.text


REFUSED = [
    ("transf_encoder.num_layers", 2),
    ("transf_decoder._target_", "nemo.collections.nlp.modules.common.huggingface.AutoModelEncoder"),
    ("transf_decoder.pre_ln_final_layer_norm", False),
    ("transf_decoder.config_dict.pre_ln", False),
    ("transf_decoder.config_dict.num_token_types", 2),
    ("transf_decoder.config_dict.hidden_act", "silu"),
    ("transf_decoder.config_dict.hidden_size", 60),
    ("transf_decoder.config_dict.max_sequence_length", 10**6),
    ("transf_decoder.config_dict.new_in_the_next_release", True),
    ("model_defaults.asr_enc_hidden", 512),
    ("model_defaults.lm_dec_hidden", 512),
    ("head.num_layers", 2),
    ("head.hidden_size", 128),
    ("prompt_format", "canary3"),
    ("prompt_format", None),
    ("decoding.strategy", "sample"),
    ("decoding.temperature", 0.5),
    ("decoding.beam.beam_size", 500),
    ("decoding.beam.ngram_lm_model", "lm.arpa"),
    ("decoding.beam.max_generation_delta", "50"),
    ("decoding.beam.boosting_tree.key_phrases_list", ["steno"]),
    ("tokenizer.type", "wpe"),
    ("tokenizer.custom_tokenizer._target_", "nemo.CanaryMultilingualTokenizer"),
    ("tokenizer.langs.en-US.type", "wpe"),
    ("tokenizer.langs.klingon", {"type": "bpe", "model_path": "nemo:en.model"}),
]
HARMLESS = [
    ("transf_encoder.hidden_size", 1),
    ("transf_decoder.config_dict.ffn_dropout", 0.5),
    ("decoding.greedy", {"max_generation_delta": 7, "temperature": 2.0}),  # the other strategy
    ("multitask_metrics_cfg", None),
]


def document():
    found = yaml.safe_load((CONFIGS / "canary_flash_like.yaml").read_text(encoding="utf-8"))
    found["head"]["num_classes"] = 400
    return found


@pytest.mark.parametrize(("key", "value"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_would_change_the_result_is_refused_by_name(key, value):
    assert blamed(parse_nemo_config, document(), key, value) == key


@pytest.mark.parametrize(("key", "value"), HARMLESS, ids=str)
def test_what_cannot_change_the_result_is_accepted(key, value):
    changed = document()
    put(changed, key, value)

    assert parse_nemo_config(changed) == parse_nemo_config(document())


@pytest.mark.parametrize("key", ["pre_ln", "num_token_types"])
def test_an_absent_key_stands_for_nemos_default_which_is_refused(key):
    changed = document()
    drop(changed, f"transf_decoder.config_dict.{key}")

    with pytest.raises(UnsupportedValueError, match=key):
        parse_nemo_config(changed)


@pytest.mark.parametrize(
    ("slot", "value"),
    [
        ("decodercontext", "a talk on ferries"),
        ("emotion", "<|emo:happy|>"),
        ("pnc", "<|nopnc|>"),
        ("itn", "<|itn|>"),
        ("timestamp", "<|timestamp|>"),
        ("diarize", "yes"),
        ("source_lang", "english"),
        ("source_lang", "<|unklang|>"),
        ("target_lang", "<|de|>"),
        ("speaker", "<|spk0|>"),
    ],
)
def test_a_default_prompt_that_asks_for_something_else_is_refused_by_its_slot(slot, value):
    changed = document()
    changed["prompt_defaults"][0]["slots"][slot] = value

    with pytest.raises(UnsupportedValueError, match=rf"^prompt_defaults\[0\]\.slots\.{slot} is "):
        parse_nemo_config(changed)


def test_the_language_of_the_default_prompt_is_the_models():
    changed = document()
    changed["prompt_defaults"][0]["slots"] |= {"source_lang": "<|de|>", "target_lang": "<|de|>"}

    assert parse_nemo_config(changed).config.prompts.default_language == "de"


class Pieces:
    """A vocabulary of the pieces that prompts need."""

    def __init__(self, prompts):
        self.pieces = tuple(dict.fromkeys(required_pieces(prompts)))


@pytest.mark.parametrize(("language", "taken"), [("de", "de"), ("ja", "en")])
def test_a_default_language_that_the_model_does_not_speak_is_replaced_with_a_warning(caplog, language, taken):
    changed = document()
    changed["prompt_defaults"][0]["slots"] |= {"source_lang": language, "target_lang": language}
    config = parse_nemo_config(changed).config

    assert prompted(config, Pieces(config.prompts)).prompts.default_language == taken
    warned = [f"the model does not speak its default language, {language}; {taken} takes its place"]
    assert caplog.messages == (warned if language != taken else [])


def test_a_beam_is_the_checkpoints_and_no_other_strategys():
    changed = document()
    changed["decoding"]["beam"] |= {"beam_size": 5, "len_pen": 0.6}
    changed["decoding"]["greedy"] = {"max_generation_delta": 7}

    found = parse_nemo_config(changed).config.attention
    greedy = parse_nemo_config(changed | {"decoding": changed["decoding"] | {"strategy": "greedy"}}).config.attention

    assert (found.beam, found.length_penalty) == (5, 0.6)
    assert (greedy.beam, greedy.length_margin, greedy.length_penalty) == (1, 7, 0.6)
    drop(changed, "decoding.beam.len_pen")
    assert parse_nemo_config(changed).config.attention.length_penalty == 1.0  # NeMo's default


def test_no_margin_means_that_only_positions_bound_a_text():
    changed = document()
    drop(changed, "decoding.beam.max_generation_delta")

    assert parse_nemo_config(changed).config.attention.length_margin is None


@pytest.mark.parametrize("is_missing", [False, True])
def test_an_output_layer_that_is_not_the_embedding_or_is_missing_is_refused(is_missing, tmp_path):
    members, name = canary_like.members("canary_1b_like"), "log_softmax.mlp.layer0.weight"
    tensors = torch.load(io.BytesIO(members[WEIGHTS]), weights_only=True)
    weight = tensors.pop(name)
    if not is_missing:
        tensors[name] = weight + 1

    error = refusal(archive(tmp_path / "model.nemo", members | {WEIGHTS: saved(tensors)}))

    assert isinstance(error, TensorMismatchError)
    (problem,) = error.problems
    assert problem.startswith(name)
    assert problem.endswith("is missing" if is_missing else "must equal the embedding, and does not")


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    members = canary_like.members("canary_1b_like")
    members["fr.model"] = canary_like.vocabulary(*(f"<x{number}>" for number in range(9)))

    assert "pieces of the tokenizer" in str(refusal(archive(tmp_path / "model.nemo", members)))
