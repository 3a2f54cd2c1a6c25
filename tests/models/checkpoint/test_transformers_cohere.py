"""Cohere Transcribe as transformers saves it writes the same tokens here as there; changed folders are refused.

Weights are random, and large enough for texts of some length; transformers is imported where it is used, because that
alone takes seconds.
"""

import json

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from models import CheckpointError, Prompt, PromptError, load_model
from models.checkpoint import read_checkpoint
from models.config import PromptConfig
from models.text.prompt_writer import END, required_pieces
from tests.models import golden_data as golden
from tests.models.canary import prompt_tokens
from tests.models.checkpoint import test_transformers_canary as canary
from tests.models.checkpoint.nemo_files import drop, put
from tests.models.checkpoint.transformers_files import changed
from tests.models.checkpoint.transformers_models import converted, decoder_sizes, random_prompted
from tests.models.companions import MARGIN

pytestmark = pytest.mark.golden

# Those of the processor, and one that only the vocabulary has.
LANGUAGES = ("ar", "de", "el", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "vi", "zh")
PIECES = dict.fromkeys(required_pieces(PromptConfig("cohere", (*LANGUAGES, "ru"), "en", timestamps=False)))
SPECIAL = tuple(piece for piece in PIECES if piece != "▁")
CLIPS = [golden.clip("espeak-300ms"), golden.clip("slt-12s")[20_000:41_117], golden.clip("awb-4s")]


def save_processor(folder, mels):
    """Save a processor with a SentencePiece model that transformers converts; return vocabulary and processor."""
    from transformers import CohereAsrFeatureExtractor, CohereAsrProcessor

    tokenizer = converted(folder, 320, SPECIAL, byte_fallback=True)
    tokenizer.add_special_tokens({"unk_token": "<unk>", "eos_token": END})
    processor = CohereAsrProcessor(CohereAsrFeatureExtractor(feature_size=mels, dither=0.0), tokenizer)
    processor.save_pretrained(folder)
    return tokenizer.get_vocab(), processor


def random_model(vocabulary, shape, decoder, biases, seed):
    return random_prompted("CohereAsr", vocabulary, "▁", shape, biases, seed, **decoder)


DECODERS = decoder_sizes(hidden_size=[8, 32], max_position_embeddings=[64, 128])


@pytest.mark.slow
def test_random_models_write_the_same_tokens_alone_and_in_a_batch(tmp_path_factory):
    compared = []

    @settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(canary.SHAPES, DECODERS, st.booleans(), st.sampled_from(LANGUAGES), st.booleans(), st.integers(0, 2**16))
    def check(shape, decoder, biases, language, punctuation, seed):
        folder = tmp_path_factory.mktemp("cohere")
        vocabulary, processor = save_processor(folder, shape["num_mel_bins"])
        theirs = random_model(vocabulary, shape, decoder, biases, seed)
        theirs.save_pretrained(folder)
        ours = load_model(folder)
        assert ours.info()["languages"] == list(LANGUAGES)
        together = ours.transcribe(CLIPS, language=language, punctuation=punctuation)
        for samples, in_batch in zip(CLIPS, together, strict=True):
            inputs = processor(samples, language, sampling_rate=16_000, punctuation=punctuation)
            ids = inputs["decoder_input_ids"][0].tolist()
            prompt = Prompt(language=language, punctuation=punctuation)
            assert prompt_tokens(folder, prompt) == ids
            tokens, lead = canary.alone(ours, samples, prompt)
            assert in_batch.tokens == tokens
            if lead < MARGIN:
                event("a decision under the margin")
                continue
            features = {"input_features": inputs["input_features"], "attention_mask": inputs["attention_mask"]}
            wanted = canary.written_by_transformers(theirs, features, ids, vocabulary[END])
            assert tokens[: canary.MOST] == wanted[: len(tokens)]
            full = len(ids) + len(tokens) >= decoder["max_position_embeddings"]
            assert len(tokens) >= min(canary.MOST, len(wanted)) or full
            compared.append(tokens)

    check()
    assert len(compared) >= 6
    assert len({len(tokens) for tokens in compared}) >= 2


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    shape = {"num_hidden_layers": 1, "hidden_size": 24, "num_attention_heads": 2, "num_mel_bins": 16}
    small = {"intermediate_size": 16, "subsampling_conv_channels": 4}
    decoder = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    vocabulary, _ = save_processor(folder, 16)
    random_model(vocabulary, shape | small, decoder, biases=True, seed=0).save_pretrained(folder)
    load_model(folder)
    return folder


def test_it_translates_nothing_and_writes_no_times(saved):
    model = load_model(saved)

    assert model.info()["class"] == "CohereAsrForConditionalGeneration"
    told = model.info()["capabilities"]
    assert (told["translation"], told["word_timestamps"], told["itn"]) == (False, False, False)
    for wish in ({"target_language": "de"}, {"timestamps": True}, {"itn": True}, {"language": "ru"}):
        with pytest.raises(PromptError):
            model.transcribe(CLIPS[:1], **({"language": "en"} | wish))


def test_newer_names_of_tensors_and_those_without_a_prefix_are_the_same_model(saved, tmp_path):
    from models.checkpoint.transformers.cohere import cohere_names
    from models.network import Network

    config = read_checkpoint(saved).config
    names = [cohere_names(name, config.encoder) for name in Network.without_weights(config).state_dict()]
    wanted = [one.tokens for one in load_model(saved).transcribe(CLIPS)]
    tensors = load_file(saved / "model.safetensors")
    for place in (1, 2):
        folder = changed(saved, tmp_path / str(place), "config.json")
        renamed = {theirs: choice[place] for choice in names for theirs in choice if theirs in tensors}
        save_file({renamed.get(name, name): value for name, value in tensors.items()}, folder / "model.safetensors")

        assert [one.tokens for one in load_model(folder).transcribe(CLIPS)] == wanted


def test_the_published_configuration_has_nemos_sections_and_sizes_by_default(saved, tmp_path):
    """All sizes are transformers' defaults then, so the small tensors do not fit, and nothing else is refused."""
    folder = changed(
        saved,
        tmp_path / "released",
        "config.json",
        ("encoder", {"d_model": 1280, "n_layers": 48, "xscaling": False, "att_context_size": [-1, -1]}),
        ("transf_decoder", {"config_dict": {"hidden_act": "relu", "pre_ln": True}}),
        ("supported_languages", ["en", "de"]),
        ("auto_map", {"AutoProcessor": "processing_cohere_asr.CohereAsrProcessor"}),
        ("max_audio_clip_s", 35),
    )
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    drop(document, "encoder_config")
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": "CohereAsrProcessor"}))
    (folder / "preprocessor_config.json").write_text(json.dumps({"auto_map": {}, "processor_class": "any"}))

    with pytest.raises(CheckpointError, match=r"conv\.0\.weight is .4, 1, 3, 3. but must be .256, 1, 3, 3."):
        load_model(folder)

    put(document, "encoder.xscaling", True)
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"encoder\.xscaling"):
        load_model(folder)


@pytest.mark.parametrize(
    ("file", "key", "value", "told"),
    [
        ("config.json", "tie_word_embeddings", True, "tie_word_embeddings"),
        ("config.json", "vocab_size", 4097, "vocab_size"),
        ("config.json", "eos_token_id", 5, "eos_token_id"),
        ("config.json", "hidden_size", 24, "hidden_size"),
        ("config.json", "hidden_size", -1, "hidden_size"),
        ("config.json", "hidden_act", "silu", "hidden_act"),
        ("config.json", "num_key_value_heads", 1, "num_key_value_heads"),
        ("config.json", "head_dim", 4, "head_dim"),
        ("config.json", "attention_bias", False, "attention_bias"),
        ("config.json", "num_hidden_layers", 2, "layers.1"),
        ("config.json", "max_position_embeddings", 10**9, "max_position_embeddings"),
        ("config.json", "encoder_config", [1], "encoder_config"),
        ("config.json", "encoder_config.hidden_size", 32, "must be"),
        ("config.json", "supported_languages", ["xx"], "without <|xx|>"),
        ("config.json", "supported_languages", [["en"]], "supported_languages"),
        ("config.json", "new_in_the_next_release", True, "new_in_the_next_release"),
        ("config.json", "auto_map", {"AutoModel": "code.Model"}, "auto_map"),
        ("generation_config.json", "num_beams", 4, "num_beams"),
        ("processor_config.json", "feature_extractor.feature_extractor_type", "ParakeetFeatureExtractor", "extractor"),
        ("processor_config.json", "feature_extractor.normalize", "NA", "normalize"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(saved, tmp_path, file, key, value, told):
    with pytest.raises(CheckpointError) as refused:
        load_model(changed(saved, tmp_path / "changed", file, (key, value)))

    assert told in str(refused.value)
