"""Models that transformers itself saved give the same features, frames and tokens here as there.

The models are random, and so wide that they say something; transformers is imported where it is used, because that
alone takes seconds.
"""

from itertools import groupby

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import load_model
from models.text.tokenizers import SentencePieceTokenizer
from tests.models import golden_data as golden
from tests.models.checkpoint.sentencepiece_models import SENTENCES, sentencepiece_model
from tests.models.checkpoint.transformers_models import converted, encoder_sizes, randomize
from tests.models.companions import MARGIN, alone

pytestmark = pytest.mark.golden

CLIPS = [golden.clip("slt-12s")[20_000:31_117], golden.clip("espeak-300ms")]
DURATIONS = 5
MAX_SYMBOLS = 10

SHAPES = encoder_sizes(hidden_size=[16, 24, 32], conv_kernel_size=[1, 3, 9], num_mel_bins=[16, 24, 80])


def vocabulary(*, byte_fallback):
    """The arguments of ``sentencepiece_model``."""
    options = {"byte_fallback": byte_fallback, "hard_vocab_limit": False}
    return (300, ("<|en|>",), SENTENCES) if byte_fallback else (28, (), SENTENCES), options


def save_processor(folder, kind, mels, *, byte_fallback):
    """Write what transformers' own conversion of a SentencePiece model gives; returns the number of labels."""
    from transformers import ParakeetFeatureExtractor, ParakeetProcessor

    sizes, options = vocabulary(byte_fallback=byte_fallback)
    tokenizer = converted(folder, *sizes, **options)
    labels, blank = len(tokenizer), "<pad>" if kind == "ctc" else "<blank>"
    tokenizer.add_tokens([blank], special_tokens=True)
    tokenizer.add_special_tokens({"unk_token": "<unk>", "pad_token": blank})
    extractor = ParakeetFeatureExtractor(feature_size=mels)
    ParakeetProcessor(extractor, tokenizer, decoder_type=kind).save_pretrained(folder)
    return labels, extractor


def random_model(kind, labels, shape, biases, seed):
    """Build one of transformers' models with weights, biases and running statistics that all show."""
    import transformers

    torch.manual_seed(seed)
    name = kind.upper()
    common = {"encoder_config": shape | {"attention_bias": biases, "convolution_bias": biases}}
    if kind == "ctc":
        common |= {"pad_token_id": labels}
    else:
        common |= {"blank_token_id": labels, "pad_token_id": labels, "decoder_hidden_size": 12}
    config = getattr(transformers, f"Parakeet{name}Config")(vocab_size=labels + 1, **common)
    model = getattr(transformers, f"ParakeetFor{name}")(config).eval()
    randomize(model, std=0.3)
    head = model.ctc_head if kind == "ctc" else model.joint.head
    head.weight.data.mul_(4)
    head.bias.data[labels] += 3.0
    if kind != "ctc":
        model.decoder.decoder_projector.weight.data.mul_(4)
        model.generation_config.decoder_start_token_id = labels
    if kind == "tdt":
        model.generation_config.suppress_tokens = list(range(labels + 1, labels + 1 + DURATIONS))
    return model


@torch.no_grad()
def balance(model, inputs, blank):
    """Let the blank of a transducer win at every second frame before the first label."""
    frames = model.get_audio_features(**inputs).pooler_output[0]
    start = model.decoder(torch.tensor([[blank]]))[0, -1]
    logits = model.joint(decoder_hidden_states=start, encoder_hidden_states=frames)
    model.joint.head.weight[blank] = 0
    model.joint.head.bias[blank] = logits[:, :blank].max(dim=1).values.median()


def tokens_of_transformers(kind, model, inputs, labels):
    if kind == "ctc":
        return [token for token, _ in groupby(model.generate(**inputs)[0].tolist()) if token != labels]
    return transducer_tokens(model, inputs, labels)


def transducer_tokens(model, inputs, blank):
    """Search greedily with transformers' modules: its ``generate`` does the same, in far more time for each step.

    One difference: only an RNN-T leaves a frame after `max_symbols` labels.
    """
    encoded = model.get_audio_features(**inputs)
    frames = encoded.pooler_output[0, : encoded.attention_mask.sum()]
    tokens, time, here = [], 0, 0
    while time < len(frames):
        predicted = model.decoder(torch.tensor([[blank, *tokens]]))[0, -1]
        logits = model.joint(decoder_hidden_states=predicted, encoder_hidden_states=frames[time])
        token, steps = int(logits[: blank + 1].argmax()), logits[blank + 1 :]
        move = int(steps.argmax()) if len(steps) else 0
        if token == blank:
            move = max(move, 1)
        else:
            tokens.append(token)
            move += here + 1 == MAX_SYMBOLS and not move
        time, here = time + move, 0 if move else here + 1
    return tokens


def reaches_the_cap(hypothesis):
    return max((len(list(run)) for _, run in groupby(hypothesis.frames)), default=0) >= MAX_SYMBOLS


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ctc", "rnnt", "tdt"])
def test_random_models_give_the_same_tokens(kind, tmp_path_factory):
    compared = []

    @settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(SHAPES, st.booleans(), st.booleans(), st.integers(0, 2**16))
    def check(shape, biases, byte_fallback, seed):
        folder = tmp_path_factory.mktemp(kind)
        labels, extractor = save_processor(folder, kind, shape["num_mel_bins"], byte_fallback=byte_fallback)
        theirs = random_model(kind, labels, shape, biases, seed)
        if kind != "ctc":
            balance(theirs, extractor(CLIPS[0], sampling_rate=16_000, return_tensors="pt"), labels)
        theirs.save_pretrained(folder)
        ours = load_model(folder)
        assert ours.decoders == (kind,)
        for samples in CLIPS:
            inputs = extractor(samples, sampling_rate=16_000, return_tensors="pt")
            with torch.no_grad():
                check_frames(ours, theirs, samples, inputs)
                tokens = tokens_of_transformers(kind, theirs, inputs, labels)
            hypothesis, lead = alone(ours, kind, samples)
            if lead > MARGIN and not (kind == "tdt" and reaches_the_cap(hypothesis)):
                assert hypothesis.tokens == tokens
                compared.append(len(tokens))

    check()
    assert len(compared) >= 3, compared
    assert sum(compared) >= 6, compared


def check_frames(ours, theirs, samples, inputs):
    features, lengths = ours.features([samples])
    expected = inputs["input_features"].transpose(1, 2)[:, :, : lengths[0]]
    assert lengths.tolist() == inputs["attention_mask"].sum(1).tolist()
    assert (features - expected).abs().max() < golden.FEATURES_LARGEST

    encoded, lengths = ours.encode(expected, lengths)
    frames = theirs.encoder(**inputs).last_hidden_state[:, : lengths[0]]
    assert (encoded - frames).abs().max() < golden.ENCODER_FROM_FEATURES * max(1.0, float(frames.abs().max()))


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_texts_of_a_converted_vocabulary_are_those_of_its_sentencepiece_model(byte_fallback, tmp_path):
    from models.checkpoint.transformers.json_document import parse_json
    from models.checkpoint.transformers.tokenizer import parse_tokenizer

    labels, _ = save_processor(tmp_path, "tdt", 80, byte_fallback=byte_fallback)
    documents = [(tmp_path / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")]
    ours = parse_tokenizer(*(parse_json(content, "it") for content in documents), labels)
    sizes, options = vocabulary(byte_fallback=byte_fallback)
    original = SentencePieceTokenizer(sentencepiece_model(*sizes, **options))
    special = [token for token, piece in enumerate(original.pieces) if piece in ("<unk>", "<s>", "</s>")]
    assert ours.pieces == original.pieces
    assert ours.join(special) == ""
    assert {ours.token_bytes(token) for token in special} == {b""}

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(0, labels - 1).filter(lambda token: token not in special), max_size=12))
    def check(tokens):
        assert ours.join(tokens) == original.join(tokens)
        assert [ours.token_bytes(token) for token in tokens] == [original.token_bytes(token) for token in tokens]

    check()
