"""make names what is missing, and installs what its targets need."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
