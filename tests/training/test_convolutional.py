"""Jasper, QuartzNet and Citrinet are trained with CTC, by characters or pieces, and come back from their archive."""

import pytest

from benchmarks.random_model import published_config
from models import load_model
from models.checkpoint import read_checkpoint
from tests.conftest import ROOT
from tests.training.small_run import CHECKPOINT, finish, log, manifest, new_run
from training.errors import RecipeError
from training.recipe_file import read_recipe
from training.student import student_config

LETTERS = " abcdefghijklmnopqrstuvwxyz'"
FIRST = {"filters": 16, "kernel_size": 11, "stride": 2, "residual": False}
LAST = {"filters": 24, "kernel_size": 1, "residual": False, "separable": False}
FAMILIES = {
    "quartznet": [FIRST, {"filters": 16, "kernel_size": 13, "repeat": 2}, LAST],
    "jasper": [
        FIRST | {"separable": False},
        {"filters": 16, "kernel_size": 5, "repeat": 2, "separable": False, "dense": True},
        {"filters": 20, "kernel_size": 5, "repeat": 2, "separable": False, "dense": True},
        LAST,
    ],
    "citrinet": [FIRST, {"filters": 16, "kernel_size": 5, "stride": 2, "repeat": 2, "squeeze_ratio": 4}, LAST],
}


def convolutional(folder, blocks, **changes):
    labels = {"characters": LETTERS, "vocabulary": None}
    optimizer = {"algorithm": "novograd", "peak": 0.02, "betas": [0.95, 0.5], "warmup": 2}
    options = {"student": None, "convolutional": {"blocks": blocks}, "optimizer": optimizer, "augmentation": {}}
    return new_run(folder, **labels | options | {"dropout": 0.0} | changes)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("labels", [{}, {"characters": None, "vocabulary": str(CHECKPOINT)}], ids=["letters", "pieces"])
def test_the_loss_falls_and_the_archive_is_the_model(tmp_path, family, labels):
    run = convolutional(tmp_path, FAMILIES[family], steps=40, **labels)

    finish(run)
    run.export(tmp_path / "model.nemo")

    losses = [line["loss"] for line in log(run.folder)]
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])
    assert read_checkpoint(tmp_path / "model.nemo").config == run.config
    model = load_model(tmp_path / "model.nemo")
    assert model.info()["family"] == family
    assert model.info()["vocabulary"]["size"] == (28 if not labels else 128)


def test_texts_take_the_case_of_the_labels_and_missing_characters_are_reported(tmp_path):
    path = manifest(tmp_path)
    path.write_text(path.read_text().replace("and then", "And, then!"))
    run = convolutional(tmp_path, FAMILIES["quartznet"])

    assert run.vocabulary.tokenizer.join(run.vocabulary.encode("And, then!")) == "and then"
    assert (
        "transcripts: 1 take (1.1 s) in another case or with marks that the vocabulary lacks, written as it writes"
        in run.survey
    )


@pytest.mark.parametrize(
    ("blocks", "changes", "message"),
    [
        ([FIRST | {"kernel_size": 10}], {}, "kernel_size 10 must be odd"),
        ([FIRST | {"dilation": 2}], {}, "such a model cannot be exported: .*dilation"),
        ([FIRST, {"filters": 16, "kernel_size": 5, "dense": True, "residual": False}], {}, "cannot be exported"),
        ([FIRST], {"characters": "aab"}, "characters must all differ"),
        ([FIRST], {"vocabulary": "x.model"}, "vocabulary and characters exclude each other"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once(tmp_path, blocks, changes, message):
    with pytest.raises(RecipeError, match=message):
        convolutional(tmp_path, blocks, **changes)


def test_the_recipe_of_jasper_has_the_published_shape():
    recipe = read_recipe(ROOT / "training/recipes/jasper.yaml")

    config = student_config(recipe.convolutional, len(recipe.characters), characters=True)

    assert config == published_config("jasper10x5dr", "rnnt")
