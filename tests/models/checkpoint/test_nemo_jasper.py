"""Lists of blocks are understood or refused by a key's name; published models have their sizes."""

from contextlib import suppress

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from models import CheckpointError
from models.checkpoint.nemo.config import parse_nemo_config
from models.checkpoint.nemo.jasper import parse_jasper
from models.checkpoint.nemo.names import nemo_names
from models.checkpoint.section import Section
from models.errors import UnsupportedValueError
from models.network import Network
from tests.models.checkpoint import released_like
from tests.models.checkpoint.nemo_files import CONFIGS, blamed, golden_document
from tests.models.checkpoint.test_nemo_config import VALUES

MODEL = "quartznet-small"
REFUSED = [
    ("conv_mask", False),
    ("normalization_mode", "layer"),
    ("residual_mode", "max"),
    ("activation", "hardtanh"),
    ("activation", None),
    ("frame_splicing", 3),
    ("quantize", True),
    ("feat_in", 80),
    ("jasper", []),
    ("jasper", {}),
    ("new_in_the_next_release", 1),
]
# Of a block that is the second of six and has a residual, repeat 3 and 48 channels in and out.
REFUSED_IN_A_BLOCK = [
    ("filters", 0),
    ("filters", 2**20),
    ("repeat", 0),
    ("repeat", 10**6),
    ("kernel", 33),
    ("kernel", [33, 33]),
    ("kernel", []),
    ("kernel_size_factor", 100.0),
    ("stride", [2]),
    ("stride", 1),
    ("dilation", [0]),
    ("separable", None),
    ("residual", "yes"),
    ("residual_mode", "stride_max"),
    ("groups", 4),
    ("heads", 4),
    ("future_context", 4),
    ("se", 1),
    ("new_in_the_next_release", 1),
]


def document():
    return golden_document(MODEL)


def encoder(*blocks, **keys):
    """Parse an encoder of these blocks; each gives only what differs from a plain block of 8 filters."""
    plain = {"filters": 8, "repeat": 1, "kernel": [3], "stride": [1], "dilation": [1], "dropout": 0.0}
    blocks = [{**plain, "residual": False, **block} for block in blocks]
    return parse_jasper(Section("encoder", {"feat_in": 16, "activation": "relu", "jasper": blocks, **keys}), 16)


@pytest.mark.parametrize(("key", "value"), REFUSED, ids=str)
def test_what_would_change_the_result_is_refused_by_name(key, value):
    key = f"encoder.{key}"
    assert blamed(parse_nemo_config, document(), key, value) == key


@pytest.mark.parametrize(("key", "value"), REFUSED_IN_A_BLOCK, ids=str)
def test_what_would_change_the_result_of_a_block_is_refused_by_name(key, value):
    changed = document()
    changed["encoder"]["jasper"][1][key] = value
    blamed = "stride_last" if (key, value) == ("stride", [2]) else key

    with pytest.raises(UnsupportedValueError) as caught:
        parse_nemo_config(changed)

    assert caught.value.key == f"encoder.jasper[1].{blamed}"


DENSE = {"residual": True, "residual_dense": True}


@pytest.mark.parametrize(
    ("blocks", "blamed"),
    [
        ([{"stride": [2], "dilation": [2]}], "jasper[0].dilation"),
        ([{"stride": [2], "residual": True}], "jasper[0].stride"),
        ([{"stride": [2], **DENSE, "residual_mode": "stride_add"}], "jasper[0].stride"),
        ([{"stride": [64]}, {"stride": [2]}], "jasper[1].stride"),
        ([{"residual_dense": True}], "jasper[0].residual_dense"),
        ([DENSE, {"residual": True}], "jasper[1].residual"),
        ([DENSE, {}, DENSE], "jasper[2].residual_dense"),
        ([{"se": True, "se_reduction_ratio": 9}], "jasper[0].se_reduction_ratio"),
    ],
    ids=str,
)
def test_values_that_do_not_go_together_are_refused_by_name(blocks, blamed):
    with pytest.raises(UnsupportedValueError) as caught:
        encoder(*blocks)

    assert caught.value.key == f"encoder.{blamed}"


def test_a_block_that_is_not_a_section_is_refused_by_its_place():
    changed = document()
    changed["encoder"]["jasper"][3] = ["filters", 8]

    with pytest.raises(CheckpointError, match=r"encoder\.jasper\[3\] is not a section"):
        parse_nemo_config(changed)


@pytest.mark.parametrize(
    ("kernel", "factor", "size"), [(11, 1.0, 11), (11, 0.25, 3), (11, 0.5, 5), (12, 1, 13), (3, 0.1, 1)]
)
def test_a_kernel_is_scaled_down_and_made_odd(kernel, factor, size):
    config = encoder({"kernel": [kernel], "kernel_size_factor": factor})

    assert config.blocks[0].kernel_size == size


def test_strides_of_all_blocks_multiply():
    last = {"stride": [3], "repeat": 4, "stride_last": True}

    assert encoder({"stride": [2]}, {}, last).subsampling_factor == 6


BLOCK_KEYS = [key for key, _ in REFUSED_IN_A_BLOCK] + ["stride_last", "se_reduction_ratio", "residual_dense"]


@given(place=st.integers(0, 5), key=st.sampled_from(BLOCK_KEYS), value=VALUES)
@settings(max_examples=100, deadline=None)
def test_any_value_in_a_block_is_understood_or_refused(place, key, value):
    changed = document()
    changed["encoder"]["jasper"][place][key] = value

    with suppress(CheckpointError):
        Network.without_weights(parse_nemo_config(changed).config)


def released(name):
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["jasper_10x5_dr_2020", "quartznet_15x5_2020", "citrinet_512"])
def test_released_models_have_nemos_tensors(name):
    config = parse_nemo_config(released(name)).config
    state = Network.without_weights(config).state_dict()

    named = {nemo_names(key, config.encoder)[0]: tuple(value.shape) for key, value in state.items()}

    wanted = {key: shape for key, shape in released_like.shapes(released(name)).items() if "featurizer" not in key}
    assert {key: shape[: len(named[key])] for key, shape in wanted.items()} == named
    assert name.startswith(config.encoder.family)


# In millions, as Li et al. (2019) and Kriman et al. (2019) have them.
@pytest.mark.parametrize(("name", "parameters"), [("jasper_10x5_dr_2020", 333), ("quartznet_15x5_2020", 18.9)])
def test_published_models_have_their_published_sizes(name, parameters):
    network = Network.without_weights(parse_nemo_config(released(name)).config)

    assert sum(parameter.numel() for parameter in network.parameters()) == pytest.approx(parameters * 1e6, rel=0.005)
