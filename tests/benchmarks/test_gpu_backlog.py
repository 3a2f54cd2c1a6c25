"""The backlog's runner keeps results, resumes where it was stopped, and has the rows of the document."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from benchmarks import gpu_backlog
from benchmarks.gpu_backlog import STEPS, Step, run_steps, tables
from benchmarks.rows import Rows
from tests.conftest import ROOT

# Rows that need more than the repository, or that nothing has to be run for.
BY_HAND = {"2c", "3", "4", "7a", "7b", "9", "10", "11"}


def step(name: str, code: str, minutes: float = 1.0) -> Step:
    """A step that is a line of Python, found where the test wrote it."""
    return Step("x", name, minutes, ("timeit", "-n1", "-r1", code))


def note(tmp_path, name: str) -> str:
    """Code that adds a line to a file each time it is run."""
    return f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})"


def ran(tmp_path) -> str:
    return (tmp_path / "ran").read_text()


def test_steps_run_once_and_in_order_and_what_they_print_is_kept(tmp_path):
    steps = [step("a", f"{note(tmp_path, 'a')}; print('some table')"), step("b", note(tmp_path, "b"))]

    assert run_steps(steps, tmp_path, "cpu") == {"a": "done", "b": "done"}
    assert run_steps(steps, tmp_path, "cpu") == {"a": "done", "b": "done"}

    assert ran(tmp_path) == "ab"
    assert "some table" in (tmp_path / "a.txt").read_text()


def test_a_result_that_was_cut_short_while_it_was_written_is_measured_again(tmp_path):
    steps = [step("a", note(tmp_path, "a")), step("b", note(tmp_path, "b"))]
    run_steps(steps, tmp_path, "cpu")
    endings = tmp_path / "endings.jsonl"
    endings.write_text(endings.read_text()[:-10])

    for _ in range(2):
        assert run_steps(steps, tmp_path, "cpu") == {"a": "done", "b": "done"}

    assert ran(tmp_path) == "abb"


def test_one_that_fails_does_not_stop_the_others_and_is_run_again_only_when_asked(tmp_path):
    steps = [step("a", f"{note(tmp_path, 'a')}; raise ValueError"), step("b", note(tmp_path, "b"))]

    assert run_steps(steps, tmp_path, "cpu") == {"a": "exit status 1", "b": "done"}
    assert run_steps(steps, tmp_path, "cpu") == {"a": "exit status 1", "b": "done"}
    assert ran(tmp_path) == "ab"

    run_steps(steps, tmp_path, "cpu", again=True)
    assert ran(tmp_path) == "aba"


def test_one_that_hangs_is_ended_and_does_not_stop_the_others(tmp_path):
    steps = [step("a", "import signal; signal.pause()", minutes=0.01), step("b", note(tmp_path, "b"))]

    assert run_steps(steps, tmp_path, "cpu") == {"a": "took more than 2 s", "b": "done"}


def test_when_the_time_is_over_the_step_is_stopped_and_is_the_first_of_the_next_call(tmp_path):
    waits = f"import os, signal; os.path.exists({str(tmp_path / 'go')!r}) or signal.pause(); {note(tmp_path, 'a')}"
    steps = [step("a", waits), step("b", note(tmp_path, "b"))]

    assert run_steps(steps, tmp_path, "cpu", seconds=0.5) == {}
    (tmp_path / "go").touch()
    assert run_steps(steps, tmp_path, "cpu") == {"a": "done", "b": "done"}

    assert ran(tmp_path) == "ab"


@pytest.mark.slow
def test_a_step_and_its_children_end_with_the_command_even_if_that_is_killed(tmp_path):
    os.mkfifo(alive := tmp_path / "alive")
    code = (
        f"import os, signal, subprocess; end = open({str(alive)!r}, 'wb', 0); end.write(b'.');"
        " subprocess.Popen(['sleep', '600'], stdin=end); signal.pause()"
    )
    run = f"import pathlib; from benchmarks.gpu_backlog import *; run_steps([Step('x', 'a', 1, ('timeit', {code!r}))],"
    with subprocess.Popen([sys.executable, "-c", f"{run} pathlib.Path({str(tmp_path)!r}), 'cpu')"], cwd=ROOT) as runner:
        with alive.open("rb", 0) as held:
            assert held.read(1) == b"."
            runner.kill()
            assert held.read() == b""  # all that held it have ended


def test_the_document_has_the_rows_and_the_minutes_of_the_steps():
    document = (ROOT / "docs/gpu-backlog.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\w+) \|.*\| ([\d.]+ min|none) \|", document, re.MULTILINE))

    assert set(rows) - BY_HAND == {step.row for step in STEPS}
    for row in set(rows) - BY_HAND:
        assert float(rows[row].split()[0]) == sum(step.minutes for step in STEPS if step.row == row), row
    assert len({step.name for step in STEPS}) == len(STEPS)


def test_the_files_that_steps_name_are_there():
    named = {one for step in STEPS for one in step.command if one.startswith(("tests/", "samples/", "models/bundled/"))}

    assert len(named) > 6
    assert [one for one in named if not (ROOT / one).exists()] == []


def test_the_benchmarks_that_steps_and_the_rehearsal_name_are_there():
    rehearsal = (ROOT / "tests/null_cuda/rehearse.sh").read_text(encoding="utf-8")
    named = {step.command[1] for step in STEPS if step.command[0] == "benchmarks"}
    named |= set(re.findall(r"^ *benchmark (\w+)", rehearsal, re.MULTILINE))

    assert [one for one in named if find_spec(f"benchmarks.{one}") is None] == []


@pytest.mark.slow
def test_the_steps_are_listed_with_what_is_left(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "gpu_backlog", "--list", "--folder", str(tmp_path), "2b"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"2b search +3\.0 min.* benchmarks search --shape 0.6b .*\n3 minutes are left", done.stdout)


@pytest.mark.long
def test_all_of_it_runs_at_toy_size(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "gpu_backlog", "--toy", "--device", "cpu", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["left"] == []
    assert set(told["ended"].values()) == {"done"}


def test_a_rehearsal_leaves_all_steps_to_be_done(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_backlog, "STEPS", (step("a", "pass"),))
    monkeypatch.setattr("sys.argv", ["gpu_backlog", "--toy", "--device", "cpu"])
    with pytest.raises(SystemExit, match="0"):
        gpu_backlog.main()
    monkeypatch.setattr("sys.argv", ["gpu_backlog", "--list"])

    gpu_backlog.main()

    assert "1 minutes are left" in capsys.readouterr().out


@pytest.mark.slow
def test_rows_of_tests_pass_where_another_torch_warns_and_take_memory_as_engines_do(tmp_path):
    tests = next(step for step in STEPS if step.command[0] == "pytest")
    options = [option for option in tests.command[1:] if not option.startswith("tests/")]
    (tmp_path / "test_new_torch.py").write_text(
        "import os, warnings, pytest\n\n@pytest.mark.gpu\ndef test_it():\n    warnings.warn('of another torch')\n"
        "    assert os.environ['PYTORCH_CUDA_ALLOC_CONF'] == 'expandable_segments:True'\n"
    )
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tests.conftest, pytest; "
    code = path + "sys.exit(pytest.main(sys.argv[1:]))"
    # The settings of this repository, by which each warning is an error.
    command = [sys.executable, "-c", code, *options, "-c", ROOT / "pyproject.toml", tmp_path / "test_new_torch.py"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTORCH_CUDA_ALLOC_CONF"}

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_benchmarks_take_memory_as_engines_do():
    code = "import runpy, sys, os; sys.argv = ['benchmarks', 'rows']\ntry: runpy.run_module('benchmarks')\n"
    code += "except SystemExit: print(os.environ['PYTORCH_CUDA_ALLOC_CONF'])"
    environment = {name: value for name, value in os.environ.items() if name != "PYTORCH_CUDA_ALLOC_CONF"}

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)

    assert done.stdout.splitlines()[-1] == "expandable_segments:True"


def test_the_first_half_hour_has_what_is_needed_most():
    first, minutes = [], 0.0
    for one in STEPS:
        if (minutes := minutes + one.minutes) > 30:
            break
        first.append(one.row)

    assert list(dict.fromkeys(first)) == ["1a", "2", "2a", "4a", "2h", "2j", "2b", "2d", "2i", "1"]


def test_what_is_measured_is_printed_as_tables(tmp_path):
    rows = Rows("search", {"device": "H100", "torch": "2.13", "commit": "abc"}, tmp_path / "search.jsonl")
    rows.add((1,), {"batch": 1, "seconds": 0.123456, "all": [1, 2]})
    rows.add((2,), {"batch": 2, "seconds": None, "label": "x"})
    with (tmp_path / "search.jsonl").open("a") as file:
        file.write('{"cell": "3", "ro')  # it is being measured

    (search,) = [one for one in STEPS if one.name == "search"]
    assert "\n".join(tables([search, *STEPS[:2]], tmp_path)).splitlines() == [
        "2b search: H100, torch 2.13, abc",
        "",
        "| batch | seconds | label |",
        "|---|---|---|",
        "| 1 | 0.1235 |  |",
        "| 2 |  | x |",
    ]
