"""`steno train` trains, exports, goes on, and says in one line what is wrong."""

import json

import pytest

import cli
from models import load_model
from tests.training.small_run import TEXTS, manifest, recipe_file


def run(folder, *more):
    return cli.main(["train", str(folder / "recipe.yaml"), "--out", str(folder / "out"), "--device", "cpu", *more])


@pytest.fixture
def recipe(tmp_path):
    """A folder with a recipe of a few steps."""
    manifest(tmp_path)
    recipe_file(tmp_path, steps=4, dev={"manifest": "manifest.jsonl", "every": 4})
    return tmp_path


def test_a_recipe_becomes_a_model(recipe, capsys):
    assert run(recipe, "--export", str(recipe / "model.nemo")) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("parameters, step 0 of 4")
    assert out[1].startswith("step 4/4: loss ")
    assert out[2].startswith("step 4: dev WER % ")
    log = [json.loads(line) for line in (recipe / "out" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3, 4, 4]
    assert log[-1]["wer"]["all"] > 0
    assert load_model(recipe / "model.nemo").info()["layers"] == 2


def test_minutes_stop_a_run_and_resume_goes_on_with_it(recipe, capsys):
    assert run(recipe, "--minutes", "1e-9") == 0
    assert run(recipe) == 2
    assert "--resume goes on with it" in capsys.readouterr().err

    assert run(recipe, "--resume") == 0

    assert "step 4/4" in capsys.readouterr().out


def test_resume_begins_a_run_where_there_is_none(recipe):
    assert run(recipe, "--resume") == 0


def test_a_finished_run_is_only_exported(recipe, capsys):
    run(recipe)
    capsys.readouterr()

    assert run(recipe, "--resume", "--export", str(recipe / "model.nemo")) == 0

    assert "loss" not in capsys.readouterr().out
    assert (recipe / "model.nemo").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("colour: 1", "unknown key colour"),
        (None, "No such file"),
    ],
)
def test_a_recipe_that_is_wrong_is_one_line_on_stderr(recipe, capsys, content, message):
    path = recipe / "recipe.yaml"
    path.unlink()
    if content:
        path.write_text(content)

    assert run(recipe) == 2

    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_audio_that_is_not_there_is_named(recipe, capsys):
    missing = {name: text for name, text in TEXTS.items() if name == "slt-1s"}
    path = manifest(recipe, missing)
    path.write_text(path.read_text().replace("slt-1s", "gone"))

    assert run(recipe) == 2

    assert "gone.wav: No such file or directory" in capsys.readouterr().err


def test_an_export_to_nowhere_is_named(recipe, capsys):
    assert run(recipe, "--export", str(recipe / "no" / "model.nemo")) == 2

    assert "No such file or directory" in capsys.readouterr().err
