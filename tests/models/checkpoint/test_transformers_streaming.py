"""Folders of transformers' models for streams give its frames and tokens, with each look-ahead and each prompt."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import load_model
from models.errors import UnsupportedValueError
from tests.models import golden_data as golden
from tests.models.checkpoint import test_transformers_parity as parity
from tests.models.checkpoint.nemo_files import refusal
from tests.models.checkpoint.transformers_files import changed
from tests.models.checkpoint.transformers_models import encoder_sizes, randomize
from tests.models.companions import MARGIN, alone

PROMPTS = {"auto": 2, "en-US": 0, "en": 0, "de-DE": 1}
LEFT, RIGHTS = 12, [2, 0, 5]

SHAPES = encoder_sizes(num_attention_heads=[1, 2], num_mel_bins=[20, 80])


def write(folder, shape, biases, seed, *, prompted):
    """Write a random model as transformers saves it; return it with its extractor and its number of labels."""
    import transformers

    name = "Nemotron3_5Asr" if prompted else "NemotronAsrStreaming"
    labels, _ = parity.save_processor(folder, "rnnt", shape["num_mel_bins"], byte_fallback=False)
    extractor = transformers.NemotronAsrStreamingFeatureExtractor(feature_size=shape["num_mel_bins"])
    more = {"prompt_dictionary": PROMPTS, "num_prompts": 4} if prompted else {}
    getattr(transformers, f"{name}Processor")(
        extractor,
        transformers.ParakeetTokenizer.from_pretrained(folder),
        supported_num_lookahead_tokens=RIGHTS,
        default_num_lookahead_tokens=RIGHTS[0],
        **more,
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    encoder = shape | {"attention_bias": biases, "convolution_bias": biases, "sliding_window": LEFT + 1}
    encoder["default_num_lookahead_tokens"] = RIGHTS[0]
    common = {"blank_token_id": labels, "pad_token_id": labels, "decoder_hidden_size": 12, "encoder_config": encoder}
    if prompted:
        common |= {"num_prompts": 4, "prompt_intermediate_size": 2 * shape["hidden_size"], "default_prompt_id": 2}
    config = getattr(transformers, f"{name}Config")(vocab_size=labels + 1, **common)
    model = getattr(transformers, f"{name}ForRNNT")(config).eval()
    randomize(model, std=0.3)
    model.joint.head.weight.data.mul_(4)
    model.decoder.decoder_projector.weight.data.mul_(4)
    model.generation_config.decoder_start_token_id = labels
    parity.balance(model, extractor(parity.CLIPS[0], sampling_rate=16_000, return_tensors="pt"), labels)
    model.save_pretrained(folder)
    return model, extractor, labels


@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("prompted", [False, True])
def test_random_models_give_the_same_frames_and_tokens(prompted, tmp_path_factory):
    compared = []

    @settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(SHAPES, st.booleans(), st.integers(0, 2**16), st.sampled_from([None, *RIGHTS]))
    def check(shape, biases, seed, right):
        folder = tmp_path_factory.mktemp("streaming")
        theirs, extractor, labels = write(folder, shape, biases, seed, prompted=prompted)
        ours = load_model(folder, attention_context=None if right is None else f"{LEFT},{right}")
        assert ours.info()["attention_contexts"] == [f"{LEFT},{one}" for one in RIGHTS]
        look_ahead = {"num_lookahead_tokens": RIGHTS[0] if right is None else right}
        for language in [None, "de"] if prompted else [None]:
            place = {"prompt_ids": torch.tensor([1 if language else 2])} if prompted else {}
            together = ours.transcribe(parity.CLIPS, language=language)
            for samples, in_batch in zip(parity.CLIPS, together, strict=True):
                inputs = extractor(samples, sampling_rate=16_000, return_tensors="pt")
                with torch.no_grad():
                    frames = theirs.encoder(**inputs, **look_ahead).last_hidden_state
                    tokens = parity.transducer_tokens(theirs, {**inputs, **look_ahead, **place}, labels)
                encoded, (length,) = ours.encode(*ours.features([samples]))
                largest = max(1.0, float(frames.abs().max()))
                assert (encoded - frames[:, :length]).abs().max() < golden.ENCODER_FROM_FEATURES * largest
                if language:
                    assert in_batch.tokens == ours.transcribe([samples], language=language)[0].tokens
                    hypothesis, lead = in_batch, MARGIN + 1
                else:
                    hypothesis, lead = alone(ours, "rnnt", samples)
                    assert in_batch.tokens == hypothesis.tokens
                if lead > MARGIN:
                    assert hypothesis.tokens == tokens
                    compared.append(len(tokens))

    check()
    assert len(compared) >= 3, compared
    assert sum(compared) >= 6, compared


@pytest.mark.golden
@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("config.json", "encoder_config.sliding_window", LEFT),
        ("config.json", "encoder_config.sliding_window", 10**9),
        ("config.json", "encoder_config.sliding_window", "13"),
        ("config.json", "encoder_config.default_num_lookahead_tokens", -1),
        ("config.json", "encoder_config.supported_num_lookahead_tokens", [[0]]),
        ("config.json", "encoder_config.supported_num_lookahead_tokens", [0] * 65),
        ("config.json", "encoder_config.model_type", "parakeet_encoder"),
        ("config.json", "durations", [0, 1]),
        ("config.json", "num_prompts", 10**9),
        ("config.json", "num_prompts", 2),
        ("config.json", "prompt_intermediate_size", 7),
        ("config.json", "default_prompt_id", 0),
        ("processor_config.json", "num_prompts", 8),
        ("processor_config.json", "supported_num_lookahead_tokens", [4]),
        ("processor_config.json", "default_num_lookahead_tokens", 0),
        ("processor_config.json", "prompt_dictionary", {}),
        ("processor_config.json", "prompt_dictionary", {"auto": 2, "en": 4}),
        ("processor_config.json", "prompt_dictionary", {"auto": 2, "en": True}),
        ("processor_config.json", "feature_extractor.feature_extractor_type", "ParakeetFeatureExtractor"),
        ("processor_config.json", "feature_extractor.mel_filters_dtype", "bfloat16"),
    ],
)
def test_what_would_change_a_transcript_is_refused_by_name(file, key, value, written, tmp_path):
    assert isinstance(refusal(changed(written, tmp_path / "changed", file, (key, value))), UnsupportedValueError)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 16}
    shape |= {"conv_kernel_size": 3, "subsampling_factor": 4, "subsampling_conv_channels": 4, "num_mel_bins": 20}
    write(folder, shape | {"scale_input": False}, biases=False, seed=1, prompted=True)
    load_model(folder)
    return folder
