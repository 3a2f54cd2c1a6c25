"""The soak's account: faults excuse the answers that they explain, and no others."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.account import BROKEN, Account, Fault
from tests.soak.processes import Level

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("what", "faults", "is_violation"),
    [
        ("503 engine_lost", ["engine killed"], True),
        ("503 engine_lost", ["engine killed", "engine stopped for ever"], False),
        ("200 in the stream: engine_lost", ["engine killed"], True),
        ("200 in the stream: engine_lost", ["engine killed", "engine killed"], False),
        ("503 deadline_exceeded", ["engine killed", "decoders killed"], True),
        ("503 deadline_exceeded", ["engine killed", "engine stopped for a while"], False),
        ("400 invalid_audio", ["decoders killed"], True),
        ("400 invalid_audio", ["decoders killed", "decoders killed"], False),
        ("503 overloaded", ["engine killed"], True),
        ("503 overloaded", ["descriptors used up"], False),
        (BROKEN, ["front stopped for a while"], True),
        (BROKEN, ["descriptors used up"], False),
        (BROKEN, ["worker killed"], False),
        (BROKEN, ["worker stopped for a while"], True),
        ("500 internal_error", ["engine killed", "engine killed", "descriptors used up"], True),
        ("200, another text", ["engine killed", "engine killed"], True),
        ("no answer", ["engine killed", "engine killed"], True),
    ],
)
def test_only_faults_that_explain_an_answer_excuse_it(what, faults, is_violation):
    account = Account(faults=[Fault(kind, 100.0, 101.0) for kind in faults])

    account.note("json", what, 99.0, is_right=False)
    assert bool(account.violations) == is_violation

    account.note("json", what, 200.0, is_right=False)  # long after them
    assert len(account.violations) == 1 + is_violation


def test_resources_that_are_not_given_back_are_named():
    before = Level(100 << 20, 1 << 20, 200 << 20, 20, 12, 1, 3, 4, 1)
    after = Level(150 << 20, 1 << 20, 200 << 20, 90, 12, 1, 3, 4, 4)

    assert before.excess(before) == []
    assert before.excess(after) == ["descriptors: 20 before, 90 after", "files: 1 before, 4 after"]


@pytest.mark.parametrize(("descriptors", "is_excess"), [(34, False), (35, True)])
def test_two_more_decoders_have_four_files_each(descriptors, is_excess):
    before = Level(0, 0, 0, 20, 0, 1, 2, 3, 0)

    assert bool(before.excess(replace(before, descriptors=descriptors, decoders=4, children=5))) == is_excess


@pytest.mark.long
def test_a_short_soak_passes():
    command = [sys.executable, "-m", "tests.soak", "--minutes", "1", "--seed", "3"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
