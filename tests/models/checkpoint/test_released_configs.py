"""Configurations of released checkpoints are read as NeMo reads them."""

from dataclasses import replace

import pytest

from models.checkpoint.document import parse_document
from models.checkpoint.nemo.config import parse_nemo_config
from models.checkpoint.section import Section
from tests.conftest import FACTS
from tests.models.checkpoint import released_like
from tests.models.checkpoint.nemo_files import CONFIG


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("1.5e3", 1500.0),
        ("-.5e1", -5.0),
        ("1_000", 1000),
        ("~", None),
        ("null", None),
        ("", None),
        ("None", None),
        ("none", None),
        ("yes", True),
        ("off", False),
        ("2020-01-01", "2020-01-01"),
        ("'1e-5'", "1e-5"),
        ("1e", "1e"),
        ("e5", "e5"),
    ],
)
def test_plain_values_are_what_nemos_reader_takes_them_for(written, value):
    read = Section("", parse_document(f"key: {written}\n".encode(), "a document")).get("key")

    assert (type(read), read) == (type(value), value)


def test_a_piece_of_a_vocabulary_may_be_called_none():
    assert Section("", {"labels": ["None", "none"]}).strings("labels") == ("None", "none")


@pytest.mark.facts("real-configs")
@pytest.mark.parametrize(
    ("name", "decoders", "piece_seconds"),
    [
        ("parakeet-tdt-0.6b-v3", ("tdt",), 40.0),  # whose last clips of training were of 10 s
        ("parakeet-tdt_ctc-110m", ("tdt", "ctc"), 40.0),
        ("parakeet-unified-en-0.6b", ("rnnt",), 40.0),
    ],
)
def test_configurations_in_public_repositories_are_read(name, decoders, piece_seconds):
    document = parse_document((FACTS / "real-configs" / f"{name}.yaml").read_bytes(), name)
    document.setdefault("target", "EncDecRNNTBPEModel")  # the unified model's was quoted without it
    if len(document["joint"]["vocabulary"]) == 1:  # and with one piece of its vocabulary
        del document["joint"]["vocabulary"]

    config = parse_nemo_config(document).config

    assert config.decoders == decoders
    assert config.piece_seconds == piece_seconds
    assert config.piece_reason


@pytest.mark.parametrize(("trained", "piece"), [(None, 20.0), (3.0, 20.0), (10.0, 20.0), (28.0, 28.0), (400.0, 40.0)])
def test_short_clips_of_training_do_not_shorten_pieces(trained, piece):
    config = parse_nemo_config(parse_document(released_like.members("parakeet_ctc_like")[CONFIG], "a model")).config

    assert replace(config, trained_seconds=trained).piece_seconds == piece
