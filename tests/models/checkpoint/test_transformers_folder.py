"""Folders as transformers writes them are read whole and strictly; everything else about them is refused by name."""

import json
import os

import numpy as np
import pytest
import torch

from models import load_model
from models.checkpoint.transformers.json_document import MAX_VALUES
from models.checkpoint.transformers.safetensors_files import MAX_HEADER_BYTES, MAX_SHARDS
from models.errors import (
    TensorMismatchError,
    UnreadableCheckpointError,
    UnsafeCheckpointError,
    UnsupportedValueError,
)
from tests.models.checkpoint.nemo_files import drop, put, refusal
from tests.models.checkpoint.transformers_files import (
    INDEX,
    LABELS,
    WEIGHTS,
    documents,
    folder,
    sharded,
    tensors,
    write,
)

NOISE = (np.random.default_rng(0).standard_normal(16_000) * 0.1).astype(np.float32)


def changed(path, file, key, value, kind="tdt"):
    files = documents(kind)
    put(files[file], key, value)
    return write(path, files, tensors(kind))


def transcripts(path):
    return load_model(path).transcribe([NOISE])


@pytest.mark.parametrize("kind", ["ctc", "rnnt", "tdt"])
def test_each_class_loads_and_decodes_its_one_way(tmp_path, kind):
    model = load_model(folder(tmp_path, kind))

    assert model.decoders == (kind,)
    assert model.info()["class"] == f"ParakeetFor{kind.upper()}"
    assert model.info()["vocabulary"] == {"kind": "bpe", "size": LABELS}
    assert model.info()["durations"] == ([0, 1, 2, 3, 4] if kind == "tdt" else None)
    assert len(model.transcribe([NOISE])) == 1


def without_convolution_bias(path):
    """As before convolutions could be without biases."""
    files = documents()
    drop(files["config.json"], "encoder_config.convolution_bias")
    return write(path, files, tensors())


def with_a_file_of_the_extractor(path):
    files = documents()
    files["preprocessor_config.json"] = files["processor_config.json"].pop("feature_extractor")
    return write(path, files, tensors())


def without_what_may_be_left_out(path):
    files = documents()
    del files["generation_config.json"], files["tokenizer_config.json"]
    return write(path, files, tensors())


@pytest.mark.parametrize(
    "written", [sharded, without_convolution_bias, with_a_file_of_the_extractor, without_what_may_be_left_out]
)
def test_a_folder_may_have_other_files(tmp_path, written):
    assert transcripts(written(tmp_path / "other")) == transcripts(folder(tmp_path / "whole"))


def test_durations_are_used_by_their_values(tmp_path):
    assert load_model(changed(tmp_path, "config.json", "durations", [0, 1, 2, 4, 8])).info()["durations"][-1] == 8


# What asks for something else

REFUSED = [
    ("config.json", "model_type", "wav2vec2"),
    ("config.json", "model_type", "whisper"),
    ("config.json", "architectures", ["ParakeetForCTC"]),
    ("config.json", "vocab_size", LABELS + 2),
    ("config.json", "vocab_size", -1),
    ("config.json", "blank_token_id", 0),
    ("config.json", "hidden_act", "gelu"),
    ("config.json", "durations", [0, -1]),
    ("config.json", "max_symbols_per_step", None),
    ("config.json", "quantization_config", {"bits": 4}),
    ("config.json", "auto_map", {"AutoModel": "code.Model"}),
    ("config.json", "encoder_config.model_type", "parakeet_streaming_encoder"),
    ("config.json", "encoder_config.hidden_act", "relu"),
    ("config.json", "encoder_config.hidden_size", 10**9),
    ("config.json", "encoder_config.num_attention_heads", 3),
    ("config.json", "encoder_config.num_key_value_heads", 1),
    ("config.json", "encoder_config.conv_kernel_size", 4),
    ("config.json", "encoder_config.subsampling_factor", 6),
    ("config.json", "encoder_config.subsampling_conv_stride", 1),
    ("config.json", "encoder_config.num_mel_bins", 20),
    ("config.json", "encoder_config.convolution_bias", False),
    ("config.json", "encoder_config.attention_window", 128),
    ("generation_config.json", "num_beams", 4),
    ("generation_config.json", "do_sample", True),
    ("generation_config.json", "suppress_tokens", [3]),
    ("generation_config.json", "decoder_start_token_id", 1),
    ("generation_config.json", "max_new_tokens", 5),
    ("processor_config.json", "decoder_type", "ctc"),
    ("processor_config.json", "feature_extractor.feature_extractor_type", "WhisperFeatureExtractor"),
    ("processor_config.json", "feature_extractor.feature_size", 80),
    ("processor_config.json", "feature_extractor.n_fft", 399),
    ("processor_config.json", "feature_extractor.dither", 0.1),
    ("tokenizer.json", "model.type", "Unigram"),
    ("tokenizer.json", "decoder.type", "ByteLevel"),
    ("tokenizer.json", "decoder", {"type": "Sequence", "decoders": 1}),
    ("tokenizer.json", "decoder.prepend_scheme", "never"),
    ("tokenizer.json", "decoder.replacement", "_"),
    ("tokenizer.json", "added_tokens", [{"id": LABELS, "content": "word", "special": False}]),
    ("tokenizer_config.json", "clean_up_tokenization_spaces", True),
]


@pytest.mark.parametrize(("file", "key", "value"), REFUSED, ids=lambda part: str(part)[:30])
def test_what_would_change_a_transcript_is_refused_by_name(tmp_path, file, key, value):
    error = refusal(changed(tmp_path, file, key, value))

    assert isinstance(error, UnsupportedValueError)
    assert key.rpartition(".")[2] in str(error) or "labels" in str(error)


@pytest.mark.parametrize("kinds", [["Replace", "ByteFallback", "Fuse", "Strip"], ["ByteFallback", "Metaspace"]])
def test_a_decoder_in_steps_is_read_if_it_does_the_same(tmp_path, kinds):
    steps = {
        "Replace": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        "Strip": {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    }
    decoder = {"type": "Sequence", "decoders": [steps.get(kind, {"type": kind}) for kind in kinds]}
    path = changed(tmp_path / "same", "tokenizer.json", "decoder", decoder)
    decoder["decoders"][-1] |= {"stop": 1, "prepend_scheme": "never"}
    other = changed(tmp_path / "other", "tokenizer.json", "decoder", decoder)

    assert len(load_model(path).token_bytes) == LABELS
    assert isinstance(refusal(other), UnsupportedValueError)


def test_a_piece_that_is_missing_is_refused(tmp_path):
    files = documents()
    del files["tokenizer.json"]["model"]["vocab"]["at"]

    assert "labels" in str(refusal(write(tmp_path, files, tensors())))


@pytest.mark.parametrize(
    "entries",
    [{"again": 3}, {"below": -1}, {"number": 1.5}, {"half \ud800": LABELS + 1}],
    ids=["twice", "negative", "fraction", "surrogate"],
)
def test_a_vocabulary_that_contradicts_itself_is_refused(tmp_path, entries):
    files = documents()
    files["tokenizer.json"]["model"]["vocab"] |= entries

    assert isinstance(refusal(write(tmp_path, files, tensors())), UnreadableCheckpointError)


# Tensors


def test_every_tensor_that_does_not_fit_is_named(tmp_path):
    weights = tensors()
    del weights["joint.head.bias"]
    weights["surprise"] = torch.zeros(2)

    error = refusal(write(tmp_path, documents(), weights))

    assert isinstance(error, TensorMismatchError)
    assert [problem.split()[0].strip("'") for problem in error.problems] == ["joint.head.bias", "surprise"]


def test_tensors_of_other_kinds_are_refused(tmp_path):
    weights = tensors() | {"joint.head.bias": torch.zeros(LABELS + 6, dtype=torch.uint8)}

    assert "U8" in str(refusal(write(tmp_path, documents(), weights)))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", UnreadableCheckpointError),
        ((2).to_bytes(8, "little") + b"{", UnreadableCheckpointError),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}", UnsafeCheckpointError),
        (b'\x38\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}} ', UnreadableCheckpointError),
    ],
    ids=["empty", "cut", "long header", "less than it says"],
)
def test_damaged_weights_are_refused(tmp_path, content, kind):
    (folder(tmp_path) / WEIGHTS).write_bytes(content)

    assert isinstance(refusal(tmp_path), kind)


@pytest.mark.parametrize(
    "shard",
    ["../model.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "absent.safetensors", "\ud800.safetensors", 3],
)
def test_an_index_that_leads_elsewhere_is_refused(tmp_path, shard):
    (sharded(tmp_path) / INDEX).write_text(json.dumps({"weight_map": {"joint.head.bias": shard}}))

    error = refusal(tmp_path)

    assert isinstance(error, UnsafeCheckpointError | UnreadableCheckpointError)
    assert repr(shard) in str(error)


def test_an_index_that_disagrees_with_its_shards_is_refused(tmp_path):
    index = json.loads((sharded(tmp_path) / INDEX).read_text())
    index["weight_map"]["surprise"] = index["weight_map"]["joint.head.bias"]
    (tmp_path / INDEX).write_text(json.dumps(index))

    assert "surprise" in str(refusal(tmp_path))


def test_an_index_of_very_many_shards_is_refused(tmp_path):
    places = {str(number): f"{number}.safetensors" for number in range(MAX_SHARDS + 1)}

    (folder(tmp_path) / WEIGHTS).unlink()
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": places}))

    assert isinstance(refusal(tmp_path), UnsafeCheckpointError)


# Files


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WEIGHTS])
def test_a_file_that_is_missing_is_refused_by_name(tmp_path, name):
    (folder(tmp_path) / name).unlink()

    assert name in str(refusal(tmp_path))


@pytest.mark.parametrize("name", ["generation_config.json", WEIGHTS])
def test_a_broken_link_is_refused_and_not_taken_for_a_file_that_may_be_left_out(tmp_path, name):
    (folder(tmp_path) / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("absent")

    assert name in str(refusal(tmp_path))
    assert INDEX not in str(refusal(tmp_path))


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    path = folder(tmp_path / "model")
    (path / WEIGHTS).rename(tmp_path / "elsewhere")
    (path / WEIGHTS).symlink_to(tmp_path / "elsewhere")

    assert isinstance(refusal(path), UnsafeCheckpointError)


def test_links_that_the_hubs_cache_makes_are_followed(tmp_path):
    blobs, snapshots = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir()
    snapshots.mkdir()
    path = folder(snapshots / "c0ffee")
    for number, file in enumerate(sorted(path.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(f"../../blobs/{number}")

    assert load_model(path).decoders == ("tdt",)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    (folder(tmp_path) / "config.json").unlink()
    os.mkfifo(tmp_path / "config.json")

    assert isinstance(refusal(tmp_path), UnsafeCheckpointError)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", UnreadableCheckpointError),
        (b"\xff\xfe", UnreadableCheckpointError),
        (b"[]", UnreadableCheckpointError),
        (b'{"a": 1, "a": 2}', UnreadableCheckpointError),
        (b'{"a": NaN}', UnreadableCheckpointError),
        (b'{"a": ' + b"9" * 10_000 + b"}", UnreadableCheckpointError),
        (b'{"a": ' + b"[" * 100_000, UnsafeCheckpointError),
        (b"[" * (MAX_VALUES + 1), UnsafeCheckpointError),
        (b" " * (8 * 2**20 + 1), UnsafeCheckpointError),
    ],
    ids=["empty", "no text", "list", "key twice", "nan", "long number", "deep", "many", "large"],
)
def test_a_configuration_that_is_no_plain_json_is_refused(tmp_path, content, kind):
    (folder(tmp_path) / "config.json").write_bytes(content)

    assert isinstance(refusal(tmp_path), kind)
