"""Language identifiers of NeMo are read, or refused by the name of a key or a tensor; nothing of them runs."""

import os
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import CheckpointError, load_identifier
from models.checkpoint.nemo.identifier import parse_identifier
from models.errors import (
    MissingCheckpointError,
    TensorMismatchError,
    UnreadableCheckpointError,
    UnsafeCheckpointError,
    UnsupportedValueError,
)
from models.network import IdentifierNetwork
from tests.models.checkpoint.nemo_files import (
    CONFIG,
    WEIGHTS,
    archive,
    drop,
    golden_document,
    golden_members,
    golden_tensors,
    put,
    saved,
    with_config,
)
from tests.models.checkpoint.test_nemo_config import VALUES, leaves

STATISTICS, ATTENTION, MEAN = "identifier-statistics", "identifier-attention", "identifier-mean"
HUGE = 2**40


def refusal(path):
    with pytest.raises(CheckpointError) as caught:
        load_identifier(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2500
    return caught.value


@pytest.fixture
def path(tmp_path):
    return tmp_path / "identifier.nemo"


@pytest.mark.parametrize(
    ("key", "value", "blamed"),
    [
        ("target", "nemo.collections.asr.models.EncDecCTCModelBPE", "target"),
        ("target", None, "target"),
        ("preprocessor.normalize", "all_features", "preprocessor.normalize"),
        ("preprocessor._target_", "AudioToMFCCPreprocessor", "preprocessor._target_"),
        ("encoder._target_", "ECAPAEncoder", "encoder._target_"),
        ("encoder.conv_mask", False, "encoder.conv_mask"),
        ("decoder._target_", "ConvASRDecoderClassification", "decoder._target_"),
        ("decoder.angular", True, "decoder.angular"),
        ("decoder.pool_mode", "maximum", "decoder.pool_mode"),
        ("decoder.pool_mode", ["xvector"], "decoder.pool_mode"),
        ("decoder.emb_sizes", 0, "decoder.emb_sizes"),
        ("decoder.emb_sizes", [], "decoder.emb_sizes"),
        ("decoder.emb_sizes", [16] * 9, "decoder.emb_sizes"),
        ("decoder.emb_sizes", [HUGE], "decoder.emb_sizes"),
        ("decoder.emb_sizes", True, "decoder.emb_sizes"),
        ("decoder.attention_channels", HUGE, "decoder.attention_channels"),
        ("decoder.feat_in", 33, "decoder.feat_in"),
        ("decoder.num_classes", 7, "decoder.num_classes"),
        ("decoder.new_in_the_next_release", 1, "decoder.new_in_the_next_release"),
        ("train_ds.labels", None, "train_ds.labels"),
        ("train_ds.labels", ["en"], "train_ds.labels"),
        ("train_ds.labels", ["en", 5], "train_ds.labels"),
        ("train_ds.labels", ["id10001", "id10002"], "train_ds.labels"),
        ("train_ds.labels", ["bob", "alice"], "train_ds.labels"),
        ("train_ds.sample_rate", 8000, "train_ds.sample_rate"),
        ("train_ds.labels", ["en"] * 10_001, "train_ds.labels"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_would_change_the_result_is_refused_by_name(key, value, blamed):
    document = golden_document(STATISTICS)
    put(document, key, value)

    with pytest.raises(UnsupportedValueError) as caught:
        parse_identifier(document)

    assert caught.value.key == blamed


def test_absent_keys_have_nemos_defaults():
    document = golden_document(STATISTICS)
    for key in ("decoder.pool_mode", "decoder.emb_sizes", "decoder.angular", "sample_rate"):
        drop(document, key)

    config = parse_identifier(document)

    assert (config.pooling, config.embedding_widths) == ("statistics", (256,))
    assert config.features.sample_rate == 16_000


def test_widths_of_attention_and_embeddings_are_read():
    config = parse_identifier(golden_document(ATTENTION))

    assert (config.pooling, config.attention_width, config.embedding_widths) == ("attention", 8, (20, 12))


@given(key=st.sampled_from(sorted(leaves(golden_document(ATTENTION)))), value=VALUES)
@settings(max_examples=200, deadline=None)
def test_any_value_anywhere_is_understood_or_refused(key, value):
    document = golden_document(ATTENTION)
    put(document, key, value)

    with suppress(CheckpointError):
        IdentifierNetwork.without_weights(parse_identifier(document))


def test_a_missing_file_is_refused(path):
    assert isinstance(refusal(path), MissingCheckpointError)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_an_archive_without_a_file_that_it_needs_is_refused_by_its_name(path, name):
    members = golden_members(STATISTICS)
    del members[name]

    error = refusal(archive(path, members))

    assert isinstance(error, UnreadableCheckpointError)
    assert name in str(error)


@given(share=st.floats(0, 0.85))
@settings(max_examples=15, deadline=None)
def test_a_file_cut_short_is_refused(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "identifier.nemo"
    whole = archive(path, golden_members(STATISTICS)).read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])

    assert isinstance(refusal(path), CheckpointError)


class Payload:
    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_pickled_code_is_refused_and_not_run(path, tmp_path):
    content = golden_tensors(STATISTICS) | {"code": Payload(tmp_path / "code ran")}

    error = refusal(archive(path, golden_members(STATISTICS) | {WEIGHTS: saved(content)}))

    assert isinstance(error, UnsafeCheckpointError)
    assert not (tmp_path / "code ran").exists()


def test_a_configuration_that_asks_for_an_object_is_refused(path, tmp_path):
    document = f"target: !!python/object/apply:os.mkdir ['{tmp_path / 'code ran'}']".encode()

    refused = refusal(archive(path, golden_members(STATISTICS) | {CONFIG: document}))

    assert isinstance(refused, UnreadableCheckpointError)
    assert not (tmp_path / "code ran").exists()


def test_sizes_without_weights_take_no_memory(path):
    document = golden_document(STATISTICS)
    put(document, "decoder.emb_sizes", [2**14] * 8)
    document["encoder"]["jasper"][2]["filters"] = 2**14
    put(document, "decoder.feat_in", 2**14)

    assert isinstance(refusal(archive(path, with_config(golden_members(STATISTICS), document))), TensorMismatchError)


@pytest.mark.parametrize(
    ("model", "name", "tensor", "told"),
    [
        (STATISTICS, "decoder.final.weight", None, "decoder.final.weight [6, 16] is missing"),
        (STATISTICS, "decoder.final.bias", torch.ones(7), "decoder.final.bias is [7] but must be [6]"),
        (STATISTICS, "decoder.final.bias", torch.full((6,), torch.nan), "infinite or not numbers"),
        (
            STATISTICS,
            "decoder.emb_layers.1.0.weight",
            torch.ones(2),
            "'decoder.emb_layers.1.0.weight' [2] is unexpected",
        ),
        (STATISTICS, "encoder.encoder.1.res.0.0.conv.weight", None, "encoder.encoder.1.res.0.0.conv.weight"),
        (STATISTICS, "loss.scale", torch.ones(1), "'loss.scale' [1] is unexpected"),
        (ATTENTION, "decoder._pooling.attention_layer.2.bias", None, "attention_layer.2.bias [32] is missing"),
        (ATTENTION, "decoder.emb_layers.0.0.running_var", None, "decoder.emb_layers.0.0.running_var [64] is missing"),
        (MEAN, "decoder.emb_layers.0.0.weight", torch.ones(16, 64), "is [16, 64] but must be [16, 32]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_that_does_not_fit_is_named_with_its_shape(path, model, name, tensor, told):
    tensors = golden_tensors(model)
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor

    error = refusal(archive(path, golden_members(model) | {WEIGHTS: saved(tensors)}))

    assert isinstance(error, TensorMismatchError)
    assert told in str(error)
    assert len(error.problems) == 1


def test_without_the_weights_of_classes_it_loads_too(path):
    tensors = golden_tensors(STATISTICS)
    del tensors["loss.weight"]

    assert "en" in load_identifier(archive(path, golden_members(STATISTICS) | {WEIGHTS: saved(tensors)})).languages


def test_the_honest_parts_of_these_tests_make_an_identifier(path):
    members = with_config(golden_members(STATISTICS), golden_document(STATISTICS))

    load_identifier(archive(path, members | {WEIGHTS: saved(golden_tensors(STATISTICS))}))
