"""A configuration is understood, or refused by the name of a key; nothing that matters is passed over."""

from contextlib import suppress

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from models import CheckpointError
from models.checkpoint.nemo.config import parse_nemo_config
from models.checkpoint.nemo.identifier import parse_identifier
from models.config import ConformerConfig, FeatureConfig
from models.errors import UnsupportedValueError
from models.network import IdentifierNetwork
from tests.models.checkpoint.nemo_files import CONFIGS, blamed, drop, golden_document, leaves, put

REFUSED = [
    ("target", "nemo.collections.asr.models.asr_eou_models.EncDecRNNTBPEEOUModel"),
    ("sample_rate", 22_050),  # the preprocessor says 16,000
    ("preprocessor._target_", "nemo.collections.asr.modules.AudioToMFCCPreprocessor"),
    ("preprocessor.normalize", "all_features"),
    ("preprocessor.window", "hamming"),
    ("preprocessor.window_size", 0.0),
    ("preprocessor.window_size", True),
    ("preprocessor.n_window_size", 400),
    ("preprocessor.n_fft", 256),  # shorter than the window
    ("preprocessor.n_fft", 511),
    ("preprocessor.features", "${model.features}"),
    ("preprocessor.preemph", "0.97"),
    ("preprocessor.exact_pad", True),
    ("preprocessor.frame_splicing", 3),
    ("preprocessor.mag_power", 1.0),
    ("preprocessor.mel_norm", None),
    ("preprocessor.log", False),
    ("preprocessor.log_zero_guard_type", "clamp"),
    ("preprocessor.log_zero_guard_value", "tiny"),
    ("preprocessor.highfreq", 9000),
    ("preprocessor.use_grads", True),
    ("preprocessor.spectral_subtraction", False),
    ("encoder._target_", "nemo.collections.asr.modules.SqueezeformerEncoder"),
    ("encoder.feat_in", 128),
    ("encoder.feat_out", 128),
    ("encoder.n_layers", 0),
    ("encoder.n_layers", 10**9),
    ("encoder.n_layers", 2.0),
    ("encoder.d_model", 66),  # four heads
    ("encoder.d_model", -64),
    ("encoder.use_bias", None),
    ("encoder.xscaling", "yes"),
    ("encoder.subsampling", "vggnet"),
    ("encoder.subsampling", "stacking"),
    ("encoder.subsampling_factor", 1),
    ("encoder.subsampling_factor", 6),
    ("encoder.causal_downsampling", "yes"),
    ("encoder.reduction", "pooling"),
    ("encoder.self_attention_model", "abs_pos"),
    ("encoder.att_context_size", [128]),
    ("encoder.att_context_size", [70, -2]),
    ("encoder.att_context_size", [70, True]),
    ("encoder.att_context_size", [[70, 13], 70]),
    ("encoder.att_context_size", [[70, 13]] * 17),
    ("encoder.att_context_size", [10**9, 0]),
    ("encoder.att_context_size", "70,13"),
    ("encoder.att_context_style", "chunked"),
    ("encoder.att_chunk_context_size", [[70], [1], [0]]),
    ("encoder.conv_context_size", "left"),
    ("encoder.conv_context_size", [5, 4]),
    ("encoder.conv_context_size", [9, -1]),
    ("encoder.conv_norm_type", "group_norm4"),
    ("encoder.conv_kernel_size", 8),
    ("encoder.new_in_the_next_release", None),
    ("decoder.blank_as_pad", False),
    ("decoder.normalization_mode", "layer"),
    ("decoder.vocab_size", 127),
    ("decoder.context_size", 2),
    ("decoder.prednet.rnn_hidden_size", 96),
    ("decoder.prednet.pred_hidden", "48"),
    ("joint._target_", "nemo.collections.asr.modules.hybrid_autoregressive_transducer.HATJoint"),
    ("joint.jointnet.activation", "tanh"),
    ("joint.jointnet.encoder_hidden", 65),
    ("joint.jointnet.joint_hidden", 0),
    ("joint.num_extra_outputs", 4),
    ("joint.num_classes", 129),
    ("joint.vocabulary", "abc"),
    ("decoding.strategy", "maes"),
    ("decoding.temperature", 0.5),
    ("decoding.word_seperator", "|"),
    ("decoding.model_type", "multiblank"),
    ("decoding.big_blank_durations", [2, 4, 8]),
    ("decoding.durations", [0, 1, 2, 3]),
    ("decoding.durations", [0, 1, 2, 3, -4]),
    ("decoding.durations", "0 1 2 3 4"),
    ("decoding.strip_lang_tags", True),
    ("decoding.blank_penalty", 0.5),
    ("decoding.greedy", [10]),
    ("decoding.greedy.max_symbols", 10**6),
    ("decoding.greedy.max_symbols", -1),
    ("decoding.greedy.ngram_lm_model", "lm.arpa"),
    ("decoding.greedy.boosting_tree.key_phrases_list", ["steno"]),
    ("aux_ctc.decoder._target_", "nemo.collections.asr.modules.LSTMDecoder"),
    ("aux_ctc.decoder.add_blank", False),
    ("aux_ctc.decoder.num_classes", 64),
    ("aux_ctc.decoding.strategy", "flashlight"),
    ("tokenizer.custom_tokenizer", {"_target_": "CanaryTokenizer"}),
    ("tokenizer.model_path", None),
    ("tokenizer.type", "wpe"),
]
# Where two keys contradict each other, the one that is compared with the other is blamed.
BLAMED = {
    "sample_rate": "preprocessor.sample_rate",
    "joint.num_extra_outputs": "decoding.durations",
}
HARMLESS = [
    ("preprocessor.dither", 0.0),
    ("preprocessor.pad_to", 16),
    ("preprocessor.stft_conv", True),
    ("preprocessor.use_torchaudio", False),
    ("preprocessor.mag_power", 2),
    ("encoder.att_context_size", None),
    ("encoder.conv_context_size", [4, 4]),
    ("encoder.untie_biases", False),
    ("encoder.dropout_att", 0.0),
    ("encoder.use_pytorch_sdpa", True),
    ("decoder.vocab_size", -1),
    ("joint.experimental_fuse_loss_wer", True),
    ("joint.log_softmax", True),
    ("decoding.greedy.loop_labels", False),
    ("decoding.beam", {"beam_size": 64}),
    ("decoding.new_in_the_next_release", None),
    ("optim", {"name": "adamw"}),
]


@pytest.mark.parametrize(("key", "value"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_would_change_the_result_is_refused_by_name(key, value):
    assert blamed(parse_nemo_config, golden_document(), key, value) == BLAMED.get(key, key)


@pytest.mark.parametrize(("key", "value"), HARMLESS, ids=str)
def test_what_cannot_change_the_result_is_accepted(key, value):
    document = golden_document()
    put(document, key, value)

    assert parse_nemo_config(document) == parse_nemo_config(golden_document())


@pytest.mark.parametrize("context", [None, [-1, -1], [8, 4], [0, 0], [8], 8, [[8, 8]]], ids=str)
def test_local_attention_needs_a_context_of_two_equal_sides(context):
    document = golden_document()
    put(document, "encoder.self_attention_model", "rel_pos_local_attn")

    assert blamed(parse_nemo_config, document, "encoder.att_context_size", context) == "encoder.att_context_size"


def local_attention(**changes):
    document = golden_document()
    section = {"self_attention_model": "rel_pos_local_attn", "att_context_size": [8, 8], "global_tokens": 1}
    document["encoder"] |= section | changes
    return document


def test_a_global_token_exists_in_local_attention_only():
    assert parse_nemo_config(local_attention()).config.encoder.global_tokens == 1
    everywhere = local_attention(self_attention_model="rel_pos", att_context_size=[-1, -1])
    assert parse_nemo_config(everywhere).config == parse_nemo_config(golden_document()).config


@pytest.mark.parametrize(("key", "value"), [("global_tokens", 2), ("global_attn_separate", True)])
def test_more_of_them_or_with_weights_of_their_own_are_refused(key, value):
    key = f"encoder.{key}"
    assert blamed(parse_nemo_config, local_attention(), key, value) == key


def stateless(**changes):
    document = golden_document()
    document["decoder"] |= {"_target_": "nemo.collections.asr.modules.StatelessTransducerDecoder"} | changes
    return document


def test_a_stateless_predictor_has_a_context_and_may_be_normalized():
    plain = parse_nemo_config(stateless(prednet={"pred_hidden": 48, "pred_rnn_layers": "any"})).config.transducer
    normal = parse_nemo_config(stateless(context_size=2, normalization_mode="layer")).config.transducer

    assert (plain.predictor_context, plain.is_predictor_normalized, plain.predictor_layers) == (1, False, 0)
    assert (normal.predictor_context, normal.is_predictor_normalized, normal.predictor_width) == (2, True, 48)
    assert parse_nemo_config(golden_document()).config.transducer.predictor_context is None


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"context_size": 0}, "decoder.context_size"),
        ({"context_size": 17}, "decoder.context_size"),
        ({"context_size": "2"}, "decoder.context_size"),
        ({"context_size": None}, "decoder.context_size"),
        ({"context_size": [2]}, "decoder.context_size"),
        ({"normalization_mode": "batch"}, "decoder.normalization_mode"),
        ({"blank_as_pad": False}, "decoder.blank_as_pad"),
        ({"new_in_the_next_release": 1}, "decoder.new_in_the_next_release"),
        ({"context_size": 8, "prednet": {"pred_hidden": 15}}, "decoder.prednet.pred_hidden"),
        ({"prednet": {"pred_hidden": 48, "heads": 4}}, "decoder.prednet.heads"),
    ],
    ids=str,
)
def test_another_stateless_predictor_is_refused_by_name(changes, key):
    with pytest.raises(UnsupportedValueError) as caught:
        parse_nemo_config(stateless(**changes))

    assert caught.value.key == key


def test_a_family_that_is_not_supported_is_called_by_the_name_people_know():
    document = golden_document()
    document["encoder"]["_target_"] = "nemo.collections.asr.modules.SqueezeformerEncoder"

    with pytest.raises(UnsupportedValueError, match=r"Squeezeformer.*supported: ConformerEncoder") as caught:
        parse_nemo_config(document)

    assert caught.value.key == "encoder._target_"


def test_absent_keys_mean_nemos_defaults():
    document = golden_document("fastconformer-ctc-bpe")
    document["preprocessor"] = {"_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor"}
    sizes = {"feat_in": 64, "n_layers": 3, "d_model": 64}
    document["encoder"] = {"_target_": "nemo.collections.asr.modules.ConformerEncoder", **sizes}

    config = parse_nemo_config(document).config

    assert config.features == FeatureConfig(
        sample_rate=16_000,
        window=320,
        hop=160,
        window_stride=0.01,
        fft_size=512,
        mels=64,
        low_hz=0.0,
        high_hz=8000.0,
        preemphasis=0.97,
        log_offset=2**-24,
    )
    assert config.encoder == ConformerConfig(
        mels=64,
        layers=3,
        width=64,
        heads=4,
        feed_forward_width=256,
        kernel_size=31,
        subsampling="striding",
        subsampling_factor=4,
        subsampling_channels=64,
        bias=True,
        scale_input=True,
    )


def test_a_null_preemphasis_means_none():
    document = golden_document()
    put(document, "preprocessor.preemph", None)

    assert parse_nemo_config(document).config.features.preemphasis is None


@pytest.mark.parametrize(
    ("greedy", "max_symbols"),
    [
        ({}, 10),
        ({"max_symbols": None, "max_symbols_per_step": None}, 10),
        ({"max_symbols": 5}, 5),
        ({"max_symbols_per_step": 3}, 3),
        ({"max_symbols": 0, "max_symbols_per_step": 3}, 3),
        ({"max_symbols": 5, "max_symbols_per_step": 3}, 5),
    ],
    ids=str,
)
def test_both_spellings_of_max_symbols_are_read(greedy, max_symbols):
    document = golden_document()
    document["decoding"]["greedy"] = greedy

    assert parse_nemo_config(document).config.transducer.max_symbols == max_symbols


def test_durations_may_stand_with_the_models_defaults():
    document = golden_document()
    drop(document, "decoding.durations")

    assert parse_nemo_config(document).config.decoders == ("tdt", "ctc")


def test_a_tdt_may_have_every_duration_within_the_bounds():
    document = golden_document("fastconformer-tdt-bpe")
    put(document, "decoding.durations", list(range(65)))
    put(document, "joint.num_extra_outputs", 65)

    assert parse_nemo_config(document).config.transducer.durations == tuple(range(65))


def test_durations_of_the_models_defaults_that_do_not_fit_are_refused_by_their_own_name():
    document = golden_document()
    drop(document, "decoding.durations")

    key = "model_defaults.tdt_durations"
    assert blamed(parse_nemo_config, document, key, [0, 1]) == key


def test_leftover_durations_do_not_make_an_rnnt_a_tdt():
    document = golden_document("hybrid-rnnt-ctc-bpe")
    put(document, "model_defaults.tdt_durations", [0, 1, 2])

    assert parse_nemo_config(document).config.decoders == ("rnnt", "ctc")


@pytest.mark.parametrize("section", ["preprocessor", "encoder", "decoder", "joint", "tokenizer"])
def test_a_missing_section_is_refused_by_name(section):
    document = golden_document()
    drop(document, section)

    with pytest.raises(CheckpointError, match=section):
        parse_nemo_config(document)


def characters():
    return yaml.safe_load((CONFIGS / "conformer_ctc_characters.yaml").read_text(encoding="utf-8"))


def test_a_model_of_characters_has_them_for_labels():
    assert parse_nemo_config(characters()).labels == tuple(" abcdefghijklmnopqrstuvwxyz'")


@pytest.mark.parametrize("labels", [None, [], ["a", "b"], ["a", 2]], ids=str)
def test_a_model_of_characters_without_as_many_labels_as_outputs_is_refused(labels):
    document = characters()
    document["labels"] = None
    put(document, "decoder.vocabulary", labels)

    with pytest.raises(UnsupportedValueError, match="decoder"):
        parse_nemo_config(document)


@pytest.mark.parametrize("longest", [10**400, -1, "20", True], ids=["huge", "negative", "text", "flag"])
def test_a_length_of_clips_that_makes_no_sense_is_none(longest):
    document = golden_document()
    put(document, "train_ds.max_duration", longest)

    assert parse_nemo_config(document).config.trained_seconds is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def canary():
    return yaml.safe_load((CONFIGS / "canary_flash_like.yaml").read_text(encoding="utf-8"))


def identifier():
    return golden_document("identifier-attention")


def parse_network(document):
    IdentifierNetwork.without_weights(parse_identifier(document))


@pytest.mark.parametrize(
    ("made", "parse"),
    [
        (golden_document, parse_nemo_config),
        pytest.param(canary, parse_nemo_config, marks=pytest.mark.slow),
        (identifier, parse_network),
    ],
)
@given(data=st.data(), value=VALUES)
@settings(max_examples=250, deadline=None)
def test_any_value_anywhere_is_understood_or_refused(made, parse, data, value):
    document = made()
    put(document, data.draw(st.sampled_from(sorted(leaves(document)))), value)

    with suppress(CheckpointError):
        parse(document)


def prompted(**changes):
    document = golden_document("fastconformer-rnnt-bpe")
    document["target"] = "EncDecRNNTBPEModelWithPrompt"
    defaults = {"initialize_prompt_feature": True, "num_prompts": 8, "prompt_dictionary": {"auto": 7, "en-US": 0}}
    document["model_defaults"] = document.get("model_defaults", {}) | defaults | changes
    return document


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("initialize_prompt_feature", False),
        ("prompt_dictionary", {}),
        ("prompt_dictionary", {"en-US": 0}),
        ("prompt_dictionary", {"auto": 8}),
        ("prompt_dictionary", {"auto": "7"}),
        ("prompt_dictionary", {"auto": 7, 1: 0}),
    ],
)
def test_prompts_of_languages_that_cannot_be_are_refused_by_name(key, value):
    assert parse_nemo_config(prompted()).config.language_prompts.languages == ("en",)

    with pytest.raises(UnsupportedValueError, match=f"model_defaults.{key}"):
        parse_nemo_config(prompted(**{key: value}))


def test_of_contexts_in_chunks_the_first_side_is_a_multiple_of_a_chunk():
    document = golden_document()
    document["encoder"] |= {"att_context_style": "chunked_limited", "att_context_size": [[70, 13], [70, 0]]}
    encoder = parse_nemo_config(document).config.encoder
    assert [str(one) for one in encoder.attention_contexts] == ["70,13", "70,0"]
    assert encoder.attention_context == encoder.attention_contexts[0]

    for wrong in ([70, 12], [[70, 13], [70, 5]], [70, -1], [-1, -1]):
        document["encoder"]["att_context_size"] = wrong
        with pytest.raises(UnsupportedValueError, match="att_context_size"):
            parse_nemo_config(document)
