"""Steno installed from its wheel, in an environment where other packages have the names of its folders."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
THEIRS = ("audio", "cli", "models", "service", "training", "transcripts")
SPOKEN = (ROOT / "samples" / "austen.txt").read_text(encoding="utf-8").lower()

pytestmark = pytest.mark.long  # a wheel is built, for which pip gets the builder


def run(*command: object) -> str:
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(map(str, command), cwd="/", env=elsewhere, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with the wheel, the packages of this one, and strangers."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    for name in THEIRS:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("OWNER = 'theirs'\n", encoding="utf-8")
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    return python


@pytest.mark.parametrize("name", THEIRS)
def test_the_packages_of_others_stay_theirs(python, name):
    assert run(python, "-c", f"import {name}; print({name}.OWNER)").strip() == "theirs"


def test_the_command_finds_its_own(python):
    command = python.parent / "steno"

    assert run(command, "transcribe", ROOT / "samples" / "austen.flac").split()[:2] == SPOKEN.split()[:2]
    assert run(python, "-m", "steno", "--version").startswith("steno ")


def test_the_library_is_what_models_offers(python):
    script = "import steno, models; print(steno.load_model is models.load_model, models.__file__)"

    is_same, file = run(python, "-c", script).split()

    assert is_same == "True"
    assert "/steno/models/" in file
