"""Each data set of a recipe has its weight in every epoch."""

import numpy as np
import pytest

from tests.training.small_run import TEXTS, assert_resumes, manifest, new_run
from training.errors import RecipeError


def run_of(folder, **data):
    """A run with two data sets, of two files of one clip each and of one of two clips."""
    for number, names in enumerate([["espeak-2s"], ["slt-1s"], ["awb-4s", "rms-6s"]]):
        manifest(folder, {name: TEXTS[name] for name in names}).rename(folder / f"{'aab'[number]}_{number}.jsonl")
    data = {"manifests": ["a_*.jsonl", "b_2.jsonl"]} | data
    return new_run(folder, steps=8, data=data)


def drawn(run, epochs=40):
    """How often an epoch has each take, on average."""
    takes = np.concatenate([run.sampler.epoch(number).takes for number in range(epochs)])
    return np.bincount(takes, minlength=len(run.takes)) / epochs


def test_an_epoch_has_the_clips_of_a_data_set_as_often_as_its_weight_says(tmp_path):
    assert drawn(run_of(tmp_path, weights=[3, 0.5])) == pytest.approx([3, 3, 0.5, 0.5], abs=0.25)


def test_a_run_with_weights_resumes_as_if_it_had_not_stopped(tmp_path):
    assert_resumes(lambda: run_of(tmp_path, weights=[3, 0.5]), steps=8)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, 3], "data: weights has 3 numbers for 2 manifests"),
        ([1, 0], "data.weights is 0.0; it must be within 0.001 and 1000"),
        ([], "data.weights must be a list of at least 1"),
    ],
)
def test_weights_that_cannot_be_are_refused(tmp_path, weights, message):
    with pytest.raises(RecipeError, match=message):
        run_of(tmp_path, weights=weights)
