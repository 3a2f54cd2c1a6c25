"""Configurations of released checkpoints are read as NeMo reads them."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

from models import load_model
from models.checkpoint.document import parse_document
from models.checkpoint.nemo.config import parse_nemo_config
from models.checkpoint.nemo.names import nemo_names
from models.checkpoint.section import Section
from models.checkpoint.transformers.model_folder import check_transformers
from models.device.memory import weight_bytes
from models.errors import UnsupportedValueError
from models.network import Network
from tests.conftest import FACTS, ROOT
from tests.models.checkpoint import released_like
from tests.models.checkpoint.nemo_files import CONFIG, TOKENIZER, WEIGHTS, archive, golden_members, saved

NOISE = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)


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


RELEASED = {
    "parakeet-tdt-0.6b-v3": (("tdt",), 40.0),  # whose last clips of training were of 10 s
    "parakeet-tdt_ctc-110m": (("tdt", "ctc"), 40.0),
    "parakeet-unified-en-0.6b": (("rnnt",), 40.0),
    "nemotron-3.5-asr-streaming-0.6b": (("rnnt",), None),
}
FOLDERS = FACTS / "real-configs"


def released(name):
    """Return the configuration of a released archive."""
    document = yaml.safe_load((FOLDERS / f"{name}.yaml").read_bytes())
    document.setdefault("target", "EncDecRNNTBPEModel")  # the unified model's was quoted without it
    if len(document["joint"]["vocabulary"]) == 1:  # and with one piece of its vocabulary
        del document["joint"]["vocabulary"]
    return document


def made_small(document):
    """Cut the sizes of a configuration, and leave all else as it is."""
    sizes = {
        "encoder": {"n_layers": 1, "d_model": 64, "subsampling_conv_channels": 8},
        "decoder": {"vocab_size": 128},
        "decoder.prednet": {"pred_hidden": 16},
        "joint": {"num_classes": 128, "vocabulary": None},
        "joint.jointnet": {"joint_hidden": 16, "encoder_hidden": 64, "pred_hidden": 16},
        "model_defaults": {"enc_hidden": 64, "pred_hidden": 16, "joint_hidden": 16},
        "aux_ctc.decoder": {"feat_in": 64, "num_classes": 128, "vocabulary": None},
    }
    for path, changed in sizes.items():
        section = document
        for key in path.split("."):
            section = section.get(key, {})
        section.update({key: value for key, value in changed.items() if key in section})
    document.pop("labels", None)
    return document


@pytest.mark.facts("real-configs")
@pytest.mark.parametrize("name", RELEASED)
def test_configurations_in_public_repositories_are_read(name):
    config = parse_nemo_config(released(name)).config

    assert (config.decoders, config.piece_seconds) == RELEASED[name]
    assert config.piece_reason


@pytest.mark.facts("real-configs")
@pytest.mark.parametrize("name", RELEASED)
def test_a_small_model_with_a_released_configuration_loads_and_transcribes(name, tmp_path):
    document = made_small(released(name))
    parsed = parse_nemo_config(document)
    torch.manual_seed(0)
    state = Network(parsed.config).state_dict()
    tensors = {
        nemo_names(ours, parsed.config.encoder)[-1 if ours.startswith("ctc.") else 0]: state[ours] for ours in state
    }
    members = {CONFIG: yaml.safe_dump(document).encode(), WEIGHTS: saved(tensors)}
    members[parsed.tokenizer_files[0]] = golden_members()[TOKENIZER]

    model = load_model(archive(tmp_path / "model.nemo", members))

    for decoder in RELEASED[name][0]:
        (transcript,) = model.transcribe([NOISE], decoder=decoder)
        assert len(transcript.tokens) == len(transcript.frames)


@pytest.mark.facts("real-configs")
def test_a_folder_with_a_released_configuration_is_read_or_refused_by_its_class():
    encoders_alone = FOLDERS / "hf-canary-1b-flash"  # which somebody cut out of the model
    check_transformers(FOLDERS / "hf-parakeet-tdt-0.6b-v3")
    with pytest.raises(UnsupportedValueError, match="model_type is 'fastconformer'"):
        check_transformers(encoders_alone)
    check_transformers(FOLDERS / "hf-nemotron-3.5-asr-streaming-0.6b")


def rows(page):
    """Return the cells of each row of the table of models of a page, by the name in its first cell."""
    table = re.search(
        r"^\| model \|.*\n\|[-:| ]+\n((?:\|.*\n)+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    split = ([cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines())
    return {cells[0]: cells[1:] for cells in split}


@pytest.mark.facts("real-configs")
def test_the_table_of_models_says_real_configuration_of_those_that_are_at_hand():
    table = rows("docs/checkpoints.md")

    assert {name for name, cells in table.items() if "real configuration" in cells[-1]} == set(RELEASED)


@pytest.mark.facts("real-configs")
@pytest.mark.parametrize("page", ["docs/checkpoints.md", "README.md"])
@pytest.mark.parametrize("name", RELEASED)
def test_the_tables_have_the_memory_that_a_model_of_that_configuration_tells(name, page):
    network = Network.without_weights(parse_nemo_config(released(name)).config)
    told = weight_bytes(sum(parameter.numel() for parameter in network.parameters()))

    shown = rows(page).get(name)

    if shown is not None:
        assert f"{told['float32'] / 1e9:.1f}, {told['bfloat16'] / 1e9:.1f}" in shown
    else:
        assert page == "README.md"


def test_both_tables_agree():
    all_models = rows("docs/checkpoints.md")

    for name, cells in rows("README.md").items():
        assert set(cells) <= set(all_models[name]), name


@pytest.mark.parametrize(("like", "least"), [("parakeet_ctc_like", 20.0), ("conformer_ctc_characters", 16.0)])
def test_short_clips_of_training_do_not_shorten_pieces(like, least):
    config = parse_nemo_config(parse_document(released_like.members(like)[CONFIG], "a model")).config

    for trained, piece in ((None, least), (3.0, least), (10.0, least), (28.0, 28.0), (400.0, 40.0)):
        assert replace(config, trained_seconds=trained).piece_seconds == piece
