"""Matrices decay; norms, biases and the attention's two biases do not; every weight is in one group of one part."""

import pytest
import torch

from training.optimizer import new_optimizer
from training.recipe import Optimizer
from training.recipe_shapes import Student
from training.student import StudentNetwork, student_config


@pytest.fixture
def network():
    return StudentNetwork(student_config(Student(layers=1, width=8, heads=2), 5), dropout=0.0, seed=0)


def test_matrices_only_are_decayed(network):
    groups = new_optimizer(network, Optimizer(peak=1e-3, warmup=1, weight_decay=0.5)).param_groups

    names = {id(parameter): name for name, parameter in network.named_parameters()}
    decayed = {names[id(parameter)] for parameter in groups[0]["params"]}
    kept = {names[id(parameter)] for parameter in groups[1]["params"]}
    assert (groups[0]["weight_decay"], groups[1]["weight_decay"]) == (0.5, 0.0)
    assert len(groups[0]["params"]) + len(groups[1]["params"]) == len(decayed | kept) == len(names)
    assert all(name.endswith("weight") and "norm" not in name for name in decayed)
    assert "encoder.layers.0.attention.content_bias" in kept
    assert "ctc.projection.weight" in decayed


def test_muon_has_the_matrices_of_the_encoder_and_nothing_else(network):
    muon, *others = new_optimizer(network, Optimizer(matrices="muon", peak=1e-3, warmup=1)).param_groups

    names = {id(parameter): name for name, parameter in network.named_parameters()}
    has = {names[id(parameter)] for parameter in muon["params"]}
    assert {"encoder.layers.0.attention.query.weight", "encoder.subsampling.projection.weight"} <= has
    assert all(name.startswith("encoder.") and name.endswith("weight") for name in has)
    assert not any("depthwise" in name or "norm" in name for name in has)
    assert len(has) + sum(len(group["params"]) for group in others) == len(names)


@pytest.mark.parametrize("changes", [{}, {"algorithm": "novograd"}, {"matrices": "muon"}])
def test_the_memory_of_its_state_is_known_before_the_first_step(network, changes):
    optimizer = new_optimizer(network, Optimizer(peak=1e-3, warmup=1, **changes))
    expected = optimizer.bytes

    for weight in network.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()

    states = [state for part in optimizer.state_dict()["parts"] for state in part["state"].values()]
    moments = [value for state in states for name, value in state.items() if name not in ("step", "square")]
    assert sum(value.numel() * value.element_size() for value in moments) == expected
