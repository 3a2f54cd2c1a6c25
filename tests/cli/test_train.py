"""`steno train` trains, exports, resumes, and reports errors in one line."""

import json
import os
import resource
import subprocess
import sys

import pytest

import cli
from models import load_model
from tests.conftest import ROOT
from tests.models.checkpoint.hub_stand_in import NAME
from tests.training.small_run import TEXTS, log, manifest, recipe_file
from training.lock import locked


def run(folder, *more):
    return cli.main(
        ["train", "run", str(folder / "recipe.yaml"), "--out", str(folder / "out"), "--device", "cpu", *more]
    )


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
    assert out[1].startswith("4 clips (13.7 s); trained on: 4 takes, ")
    assert out[2].startswith("an epoch: 4 steps, 1.0 clips a batch, 2 lengths; padding ")
    assert out[3].startswith("step 0: dev WER ")
    assert out[4] == "step 1 begins; it takes longer than others"
    assert out[5].startswith("step 1: loss ")
    assert out[6].startswith("step 4/4: loss ")
    assert out[7].startswith("step 4: dev WER ")
    lines = log(recipe / "out")
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4, 4]
    assert lines[-1]["wer"]["all"] > 0
    assert lines[1]["memory"] > 10_000_000
    lowest, step = min((line["wer"]["all"], line["step"]) for line in lines if "wer" in line)
    assert out[8].endswith(
        f"model.nemo: the averaged weights of step {step}, with the lowest WER on dev, {100 * lowest:.2f} %"
        + (": training did not lower it" if step == 0 else "")
    )
    assert load_model(recipe / "model.nemo").info()["layers"] == 2


def test_minutes_stop_a_run_and_resume_goes_on_with_it(recipe, capsys):
    assert run(recipe, "--minutes", "1e-9") == 0
    assert "stopped at step 0; its state is saved, --resume continues" in capsys.readouterr().out
    assert run(recipe) == 2
    assert "--resume continues it" in capsys.readouterr().err

    assert run(recipe, "--resume") == 0

    assert "step 4/4" in capsys.readouterr().out


def test_a_check_prints_what_would_happen_and_does_nothing(recipe, capsys):
    before = sorted(recipe.iterdir())

    assert cli.main(["train", "run", str(recipe / "recipe.yaml"), "--check", "--device", "cpu"]) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("parameters, step 0 of 4")
    assert out[2].startswith("an epoch: 4 steps")
    assert out[3].startswith("4 steps are 1.0 epochs, 0.0 h of audio")
    assert "MB for weights, their average, gradients" in out[4]
    assert out[5].split() == ["seconds", "labels", "clips", "batch"]
    assert sum(int(row.split()[2]) for row in out[6:]) == 4
    assert sorted(recipe.iterdir()) == before


def test_a_finished_run_is_made_longer(recipe, capsys):
    run(recipe)
    recipe_file(recipe, steps=7)
    capsys.readouterr()

    assert run(recipe, "--resume") == 0

    assert "step 4 of 7" in capsys.readouterr().out
    steps = [line["step"] for line in log(recipe / "out")]
    assert steps[-3:] == [5, 6, 7]


def test_the_best_on_dev_is_exported_and_not_the_last(recipe, capsys):
    run(recipe)
    lines = log(recipe / "out")
    rates = {0: 0.25, 4: 0.5}  # as if the run had made the model worse
    lines = [line | {"wer": {"all": rates[line["step"]]}} if "wer" in line else line for line in lines]
    (recipe / "out" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (recipe / "out" / "best.nemo").write_bytes(b"the weights of step 0")

    assert run(recipe, "--resume", "--export", str(recipe / "model.nemo")) == 0

    assert (recipe / "model.nemo").read_bytes() == b"the weights of step 0"
    lowest = "weights of step 0, with the lowest WER on dev, 25.00 %: training did not lower it"
    assert lowest in capsys.readouterr().out


def test_resume_begins_a_run_where_there_is_none(recipe):
    assert run(recipe, "--resume") == 0


def test_a_finished_run_is_only_exported(recipe, capsys):
    run(recipe)
    capsys.readouterr()

    assert run(recipe, "--resume", "--export", str(recipe / "model.nemo")) == 0

    out = capsys.readouterr().out
    assert "loss" not in out
    assert "no step is left" in out
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

    assert f"gone.wav ({path}, line 1): No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ([], "--out DIR is missing"),
        (["--out", "out", "--export", "no/model.nemo"], "No such file"),
        (["--out", "out", "--device", "cuda"], "no CUDA device"),
        (["--check", "--device", "cuda"], "no CUDA device"),
    ],
)
def test_nothing_is_downloaded_for_options_that_cannot_be_followed(recipe, hub, capsys, monkeypatch, more, error):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    recipe_file(recipe, initial=NAME)

    assert cli.main(["train", "run", str(recipe / "recipe.yaml"), *more]) == 2

    assert not hub.downloads()
    assert error in capsys.readouterr().err


def test_two_runs_do_not_share_a_folder(recipe, capsys):
    (recipe / "out").mkdir()
    with locked(recipe / "out"):
        assert run(recipe) == 2

    err = capsys.readouterr().err
    assert f"is in use by another run (process {os.getpid()})" in err
    assert err.count("\n") == 1
    assert run(recipe) == 0


@pytest.mark.slow
def test_threads_that_wait_sleep(recipe):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-m", "cli", "train", "run", str(recipe / "gone.yaml"), "--out", str(recipe / "out")]

    said = subprocess.run(
        command, env=environment | {"OMP_DISPLAY_ENV": "TRUE"}, cwd=ROOT, capture_output=True, text=True
    ).stderr

    assert "OMP_WAIT_POLICY = 'PASSIVE'" in said  # as OpenMP read it when PyTorch was loaded


def test_problems_with_clips_are_reported_before_the_first_step_and_end_no_run(recipe, capsys):
    path = recipe / "manifest.jsonl"
    (recipe / "garbage.wav").write_bytes(b"nothing that anyone could hear")
    (recipe / "empty.wav").write_bytes(b"")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    odd = [
        {"audio": "gone.wav", "duration": 2.0, "text": "gone"},
        {"audio": "garbage.wav", "duration": 2.0, "text": "garbage"},
        {"audio": "empty.wav", "duration": 2.0, "text": "nothing"},
        {"audio": rows[0]["audio"], "duration": 0.1, "text": "short"},
        {"audio": rows[0]["audio"], "duration": 30, "text": "long"},
        {"audio": rows[0]["audio"], "duration": rows[0]["duration"], "text": ""},
        {"audio": rows[0]["audio"], "duration": rows[0]["duration"], "text": "\u4f60"},
        {"audio": rows[0]["audio"], "duration": rows[0]["duration"], "text": "the water was " * 9},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows + odd))
    recipe_file(recipe, steps=12, data={"manifests": ["manifest.jsonl"], "unknown_share": 0.2})

    assert run(recipe, "--export", str(recipe / "model.nemo")) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[1].startswith("12 clips (")
    assert out[2] == (
        "left out: 1 clip (0.1 s) under data.min_seconds, 0.5 s, 1 clip (30.0 s) over data.max_seconds, 20 s"
    )
    assert out[3] == f"skipped: 1 clip (2.0 s) no file, such as {recipe / 'gone.wav'} ({path}, line 5)"
    assert out[4].startswith(
        "transcripts: 1 take (2.6 s) empty, 1 take (2.6 s) with letters or digits that the vocabulary lacks (\u4f60)"
    )
    assert "1 take (2.6 s) longer than their clip's frames" in out[4]
    assert sorted(line.split(" (")[0].split("/")[-1] for line in out if line.startswith("skipped: /")) == [
        "empty.wav",
        "garbage.wav",
        "gone.wav",
    ]
    steps = log(recipe / "out")
    assert len(steps) == 12
    assert sum(step.get("skipped", 0) for step in steps) >= 3


@pytest.mark.parametrize("room", [0, 3000])
def test_a_full_disk_is_one_line_and_the_run_goes_on_with_room(recipe, capsys, room):
    recipe_file(recipe, steps=12, save_every=3)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))  # a limit of files in place of one of the disk
    try:
        assert run(recipe) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    err = capsys.readouterr().err
    assert "cannot be written: File too large" in err
    assert err.count("\n") == 1
    assert not list((recipe / "out").glob("*.new"))
    assert run(recipe, "--resume") == 0
    steps = [line["step"] for line in log(recipe / "out")]
    assert steps == list(range(1, 13))


def test_a_run_that_ends_because_its_wer_does_not_fall_was_not_stopped(recipe, capsys):
    recipe_file(recipe, steps=9, dev={"manifest": "manifest.jsonl", "every": 1, "patience": 1})
    path = recipe / "recipe.yaml"
    path.write_text(path.read_text().replace("peak: 0.003", "peak: 0.00000001"))

    assert run(recipe, "--minutes", "5") == 0

    out = capsys.readouterr().out
    assert "WER has not fallen for 1 measurements" in out
    assert "stopped at" not in out


def test_a_fault_of_a_recipe_is_reported_with_its_file_and_line(recipe, capsys):
    path = recipe_file(recipe, batches={"seconds": 8, "buckets": 2, "rows": [1]})
    line = 1 + [text.strip() for text in path.read_text().splitlines()].index("rows:")

    assert run(recipe) == 2

    assert capsys.readouterr().err.startswith(f"steno: {path}, line {line}: batches.rows has 1 numbers")
