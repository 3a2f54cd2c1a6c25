"""make names what is missing, and the recipe of the bundled model consists of commands that exist."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import cli
from models.bundled import CHECKPOINT, LANGUAGE_MODEL
from training.recipe_file import read_recipe

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def steps():
    """The steno commands of `make train-bundled`, parsed as steno parses them."""
    variables = ["SPEECH=speech", "TEXT=text.xz", "TEACHER=teacher.nemo", f"VENV={sys.prefix}"]
    done = subprocess.run(
        ["make", "--dry-run", f"--old-file={sys.prefix}/.ready", "train-bundled", *variables],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = map(shlex.split, done.stdout.replace("\\\n", " ").splitlines())
    return [cli._parser().parse_args(line[1:]) for line in lines if line[0].endswith("/bin/steno")]


@pytest.mark.program("make")
def test_the_bundled_model_is_made_by_commands_that_steno_has(steps):
    *data, training, counting = steps
    assert [step.step for step in steps] == ["synthesize", "collect", "run", "language-model"]
    assert {step.text for step in steps if "text" in step} == {"text.xz"}
    made = {(ROOT / step.out / "manifest.jsonl").resolve() for step in data}
    recipe = read_recipe(ROOT / training.recipe)
    assert made <= {manifest.resolve() for manifest in recipe.data.manifests}
    assert training.resume
    assert ROOT / training.export == ROOT / counting.vocabulary == CHECKPOINT
    assert ROOT / counting.out == LANGUAGE_MODEL


@pytest.mark.program("make")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "There is no {python}: install Python 3.11 or newer"),
        ('case "$*" in *version_info*) exit 1;; -V) echo Python 3.9.2;; esac', "is Python 3.9.2, and Steno needs 3.11"),
        ('case "$*" in *ensurepip*) exit 1;; esac', "install its venv module"),
    ],
    ids=["absent", "old", "without venv"],
)
def test_a_python_that_will_not_do_is_one_line_with_the_remedy(tmp_path, script, said):
    python = tmp_path / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        python.chmod(0o755)

    done = subprocess.run(
        ["make", "--silent", "setup", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},  # `make test` sets some
        capture_output=True,
        text=True,
    )

    first, *rest = done.stderr.splitlines()
    assert done.returncode != 0
    assert said.format(python=python) in first
    assert all(line.startswith("make: ***") for line in rest)
    assert not (tmp_path / "venv").exists()


@pytest.mark.program("make")
@pytest.mark.parametrize(("target", "extras"), [("serve", ["serve"]), ("test", ["serve", "tracing", "dev"])])
def test_serving_installs_what_serving_needs_and_tests_the_rest(tmp_path, target, extras):
    done = subprocess.run(
        ["make", "--dry-run", target, f"VENV={tmp_path}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )

    words = shlex.split(done.stdout.replace("\\\n", " "))
    installed = [word[2:-1].split(",") for word in words if word.startswith(".[")]
    assert installed[0] == ["serve"]
    assert len(installed) == (1 if target == "serve" else 2)
    assert set(extras) <= set(installed[-1])
