"""Canary models that transformers saved write the same tokens here as there; changed folders are refused.

Weights are random, and large enough for texts of some length; transformers is imported where it is used, because that
alone takes seconds.
"""

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from models import CheckpointError, Prompt, load_model
from models.config import PromptConfig
from models.text.prompt_writer import END, required_pieces
from tests.models import golden_data as golden
from tests.models.canary import leads, options, prompt_tokens
from tests.models.checkpoint.transformers_files import changed
from tests.models.checkpoint.transformers_models import converted, decoder_sizes, encoder_sizes, random_prompted
from tests.models.companions import MARGIN

pytestmark = pytest.mark.golden

LANGUAGES = ("en", "de", "fr")
SPECIAL = tuple(dict.fromkeys(required_pieces(PromptConfig("canary2", LANGUAGES, "en", timestamps=False))))
CLIPS = [golden.clip("slt-12s")[20_000:41_117], golden.clip("awb-4s")]
MOST = 40
PROMPTS = [Prompt(), Prompt(language="de", punctuation=False), Prompt(target_language="fr")]

SHAPES = encoder_sizes(num_mel_bins=[16, 80])
DECODERS = decoder_sizes(max_position_embeddings=[64, 1024])


def save_processor(folder, mels):
    """Save a processor with a SentencePiece model that transformers converts; return vocabulary and extractor."""
    from transformers import CanaryProcessor, ParakeetFeatureExtractor

    tokenizer = converted(folder, 304, SPECIAL, byte_fallback=True)
    tokenizer.add_special_tokens({"unk_token": "<unk>", "eos_token": END})
    extractor = ParakeetFeatureExtractor(feature_size=mels)
    CanaryProcessor(extractor, tokenizer, chat_template="{{ 'any' }}").save_pretrained(folder)
    return tokenizer.get_vocab(), extractor


def random_model(vocabulary, shape, decoder, biases, seed):
    own = {
        "vocab_size": len(vocabulary),
        "hidden_size": shape["hidden_size"],
        "num_key_value_heads": decoder["num_attention_heads"],
        "head_dim": shape["hidden_size"] // decoder["num_attention_heads"],
        "eos_token_id": vocabulary[END],
    }
    start = "<|startofcontext|>"
    return random_prompted("Canary", vocabulary, start, shape, biases, seed, decoder_config=decoder | own)


def written_by_transformers(model, inputs, ids, end):
    found = model.generate(**inputs, decoder_input_ids=torch.tensor([ids]), max_new_tokens=MOST, do_sample=False)
    tokens = found[0, len(ids) :].tolist()
    return tokens[: tokens.index(end)] if end in tokens else tokens


def alone(model, samples, prompt):
    """What a model writes, and the smallest lead of a decision."""
    with leads(model) as found:
        (hypothesis,) = model.transcribe([samples], **options(prompt))
    return hypothesis.tokens, min(found)


@pytest.mark.slow
def test_random_models_write_the_same_tokens(tmp_path_factory):
    compared = []

    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(SHAPES, DECODERS, st.booleans(), st.sampled_from(PROMPTS), st.integers(0, 2**16))
    def check(shape, decoder, biases, prompt, seed):
        folder = tmp_path_factory.mktemp("canary")
        vocabulary, extractor = save_processor(folder, shape["num_mel_bins"])
        theirs = random_model(vocabulary, shape, decoder, biases, seed)
        theirs.save_pretrained(folder)
        ours, ids = load_model(folder), prompt_tokens(folder, prompt)
        assert ours.decoders == ("aed",)
        assert set(ours.info()["languages"]) == set(LANGUAGES)
        for samples in CLIPS:
            inputs = extractor(samples, sampling_rate=16_000, return_tensors="pt")
            tokens, lead = alone(ours, samples, prompt)
            if lead < MARGIN:
                event("a decision under the margin")
                continue
            wanted = written_by_transformers(theirs, inputs, ids, vocabulary[END])
            assert tokens[:MOST] == wanted[: len(tokens)]
            assert len(tokens) >= min(MOST, len(wanted)) or len(ids) + len(tokens) >= decoder["max_position_embeddings"]
            compared.append(tokens)

    check()
    assert len(compared) >= 3
    assert len({len(tokens) for tokens in compared}) >= 2


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    shape = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "num_mel_bins": 16}
    vocabulary, _ = save_processor(folder, 16)
    small = {"intermediate_size": 16, "subsampling_conv_channels": 4}
    decoder = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    random_model(vocabulary, shape | small, decoder, True, 0).save_pretrained(folder)
    load_model(folder)
    return folder


@pytest.mark.parametrize(
    ("file", "key", "value", "told"),
    [
        ("config.json", "tie_word_embeddings", False, "tie_word_embeddings"),
        ("config.json", "vocab_size", 4097, "vocab_size"),
        ("config.json", "eos_token_id", 5, "eos_token_id"),
        ("config.json", "new_in_the_next_release", True, "new_in_the_next_release"),
        ("config.json", "decoder_config.hidden_act", "silu", "decoder_config.hidden_act"),
        ("config.json", "decoder_config.hidden_size", 32, "decoder_config.hidden_size"),
        ("config.json", "decoder_config.num_key_value_heads", 1, "decoder_config.num_key_value_heads"),
        ("config.json", "decoder_config.head_dim", 4, "decoder_config.head_dim"),
        ("config.json", "decoder_config.attention_bias", False, "decoder_config.attention_bias"),
        ("config.json", "decoder_config.num_hidden_layers", 2, "model.decoder.layers.1"),
        ("config.json", "decoder_config.new_in_the_next_release", True, "decoder_config.new_in_the_next_release"),
        ("generation_config.json", "num_beams", 4, "num_beams"),
        ("generation_config.json", "eos_token_id", 5, "eos_token_id"),
        ("processor_config.json", "decoder_type", "ctc", "decoder_type"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(saved, tmp_path, file, key, value, told):
    with pytest.raises(CheckpointError, match=told):
        load_model(changed(saved, tmp_path / "changed", file, (key, value)))


def test_an_output_layer_of_its_own_is_refused(saved, tmp_path):
    folder = changed(saved, tmp_path / "changed", "config.json")
    tensors = load_file(folder / "model.safetensors")
    embedding = tensors["model.decoder.embed_tokens.weight"]

    save_file(tensors | {"proj_out.weight": embedding.clone()}, folder / "model.safetensors")
    load_model(folder)
    save_file(tensors | {"proj_out.weight": embedding + 1}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"proj_out\.weight must equal the embedding"):
        load_model(folder)
