"""Language identifiers of NeMo are read, or refused by the name of a key or a tensor; nothing of them runs."""

import pytest

from models import load_identifier
from models.checkpoint.nemo.identifier import parse_identifier
from models.errors import (
    TensorMismatchError,
)
from tests.models.checkpoint.nemo_files import (
    WEIGHTS,
    archive,
    blamed,
    drop,
    golden_document,
    golden_members,
    golden_tensors,
    put,
    refusal,
    saved,
    with_config,
)

STATISTICS, ATTENTION = "identifier-statistics", "identifier-attention"
HUGE = 2**40


@pytest.fixture
def path(tmp_path):
    return tmp_path / "identifier.nemo"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target", "nemo.collections.asr.models.EncDecCTCModelBPE"),
        ("target", None),
        ("preprocessor.normalize", "all_features"),
        ("preprocessor._target_", "AudioToMFCCPreprocessor"),
        ("encoder._target_", "ECAPAEncoder"),
        ("encoder.conv_mask", False),
        ("decoder._target_", "ConvASRDecoderClassification"),
        ("decoder.angular", True),
        ("decoder.pool_mode", "tap"),
        ("decoder.pool_mode", ["xvector"]),
        ("decoder.emb_sizes", 0),
        ("decoder.emb_sizes", []),
        ("decoder.emb_sizes", [16] * 9),
        ("decoder.emb_sizes", [HUGE]),
        ("decoder.emb_sizes", True),
        ("decoder.attention_channels", HUGE),
        ("decoder.feat_in", 33),
        ("decoder.num_classes", 7),
        ("decoder.new_in_the_next_release", 1),
        ("train_ds.labels", None),
        ("train_ds.labels", ["en"]),
        ("train_ds.labels", ["en", 5]),
        ("train_ds.labels", ["id10001", "id10002"]),
        ("train_ds.labels", ["bob", "alice"]),
        ("train_ds.sample_rate", 8000),
        ("train_ds.labels", ["en"] * 10_001),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_would_change_the_result_is_refused_by_name(key, value):
    assert blamed(parse_identifier, golden_document(STATISTICS), key, value) == key


def test_absent_keys_have_nemos_defaults():
    document = golden_document(STATISTICS)
    for key in ("decoder.pool_mode", "decoder.emb_sizes", "decoder.angular", "sample_rate"):
        drop(document, key)

    config = parse_identifier(document)

    assert (config.pooling, config.embedding_widths) == ("statistics", (256,))
    assert config.features.sample_rate == 16_000


def test_sizes_without_weights_take_no_memory(path):
    document = golden_document(STATISTICS)
    put(document, "decoder.emb_sizes", [2**14] * 8)
    document["encoder"]["jasper"][2]["filters"] = 2**14
    put(document, "decoder.feat_in", 2**14)

    assert isinstance(
        refusal(archive(path, with_config(golden_members(STATISTICS), document)), load_identifier), TensorMismatchError
    )


def test_without_the_weights_of_classes_it_loads_too(path):
    tensors = golden_tensors(STATISTICS)
    del tensors["loss.weight"]

    assert "en" in load_identifier(archive(path, golden_members(STATISTICS) | {WEIGHTS: saved(tensors)})).languages
