"""The Dockerfile takes what the package is made of; and the image, built and run, does what the README says."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def copied() -> set[str]:
    """What the Dockerfile takes of the repository, by its first folder."""
    lines = re.findall(r"^COPY ((?:[^-\s]\S* )+)\S+$", DOCKERFILE, re.MULTILINE)
    return {name.split("/")[0] for line in lines for name in line.split()}


def test_every_package_is_in_it():
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= copied()


def test_what_is_copied_is_not_ignored_and_nothing_else_is_sent():
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)

    assert set(allowed) == copied()


def test_versions_are_those_of_the_project():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (torch,) = re.findall(r"^TORCH_VERSION \?= (\S+)$", makefile, re.MULTILINE)

    assert re.findall(r"^ARG TORCH_VERSION=(\S+)$", DOCKERFILE, re.MULTILINE) == [torch]
    assert re.findall(r"^ARG VERSION=(\S+)$", DOCKERFILE, re.MULTILINE) == [PROJECT["project"]["version"]]


def test_the_requirements_are_those_of_the_service():
    done = subprocess.run(
        [sys.executable, ROOT / "docker" / "requirements.py", ROOT / "pyproject.toml"],
        capture_output=True,
        text=True,
        check=True,
    )

    project = PROJECT["project"]
    assert done.stdout.splitlines() == project["dependencies"] + project["optional-dependencies"]["serve"]


def test_pruning_takes_tests_and_leaves_what_is_read(tmp_path):
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    read = [packages / "silero_vad" / "data" / "silero_vad_16k_sequence.onnx", packages / "numpy" / "core.py"]
    unread = [packages / "silero_vad" / "data" / "silero_vad.jit", packages / "numpy" / "fft" / "tests" / "test_fft.py"]
    header = tmp_path / "torch" / "torch" / "include" / "c10.h"
    for path in (*read, *unread, header):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")

    prune = [sys.executable, ROOT / "docker" / "prune.py", "cpu", tmp_path / "venv", tmp_path / "torch"]
    subprocess.run(prune, capture_output=True, check=True)

    assert all(path.exists() for path in read)
    assert not any(path.exists() for path in (*unread, header))


@pytest.mark.long
@pytest.mark.program("buildah")
@pytest.mark.program("bwrap")
@pytest.mark.program("mmdebstrap")
def test_the_image_does_what_the_readme_says():
    if os.geteuid():
        pytest.skip("buildah's chroot needs root")
    work = os.environ.get("IMAGE_WORK", ROOT / "runs" / "image")

    done = subprocess.run(
        [sys.executable, ROOT / "docker" / "image_test.py", "--work", work], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
