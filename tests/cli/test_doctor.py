"""`steno doctor` reports what this machine computes, and goes on without a fast path that ends or hangs its trial."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import cli
from cli.doctor import _device


@pytest.mark.slow
def test_this_machine_is_well(capsys):
    assert cli.main(["doctor", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["well"]
    assert report["machine"]["processors"] >= 1
    assert report["device"]["name"] == "cpu"
    assert report["speech"]["text"].startswith("had he married a more amiable woman")
    assert report["fast_paths"] == {}


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """Replaces the child by a script; its arguments lie in the returned file, a line for each."""

    def replace(script: str) -> Path:
        program, told = tmp_path / "python", tmp_path / "python.told"
        end = json.dumps({"device": {}, "speech": {"same_words": True}, "fast_paths": {"attention": "used"}})
        program.write_text(f"#!/bin/sh\necho \"$@\" >> {told}\n{script}\necho '{end}'\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr("audio.pool.confinement_here", tuple)
        return told

    return replace


@pytest.mark.parametrize(("end", "state"), [("kill -ABRT $$", "failed"), ("exec sleep 60", "hung")])
def test_a_fast_path_that_ends_or_hangs_its_trial_is_left_out_of_the_next(trial, monkeypatch, capsys, end, state):
    monkeypatch.setattr("cli.doctor._TRIAL_SECONDS", 0.3)
    told = trial(f"""[ $(wc -l < "$0.told") -gt 1 ] || {{ echo '{{"trying": "search"}}'; {end}; }}""")

    assert cli.main(["doctor", "--json"]) == 1

    report = json.loads(capsys.readouterr().out)
    assert report["fast_paths"] == {"attention": "used", "search": state}
    first, second = told.read_text().splitlines()
    assert first.endswith("--fast-paths auto")
    assert ",search," not in second
    assert ",search_graphs," in second


def test_a_child_that_ends_outside_of_a_trial_says_why(trial, capsys):
    trial("echo 'steno: no checkpoint there' >&2; exit 2")

    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "steno: no checkpoint there\n"


def test_a_child_that_writes_much_to_standard_error_ends(trial, capsys):
    trial("head -c 200000 /dev/zero >&2")  # as Triton does if a kernel does not compile

    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("well\n")


def test_what_a_compiler_prints_is_no_part_of_what_the_child_says(monkeypatch, capfd):
    def trial(_):
        print("please share the reproducer")  # noqa: T201
        return {"speech": {}}

    monkeypatch.setattr("cli.doctor._trial", trial)

    assert cli.main(["doctor", "--trial"]) == 0
    assert capfd.readouterr() == ('{"speech": {}}\n', "please share the reproducer\n")


def test_of_a_gpu_the_driver_and_the_assembler_of_its_kernels_are_said(monkeypatch):
    properties = SimpleNamespace(name="NVIDIA H100", major=9, minor=0, total_memory=80e9)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr("service.engine.process.driver", lambda: "570.1")
    pytest.importorskip("triton")

    found = _device(torch.device("cuda"), "fastconformer", "bfloat16")

    assert (found["gpu"], found["driver"], found["ptxas"]) == ("NVIDIA H100", "570.1", "12.8")


@pytest.mark.parametrize(
    ("what", "value", "named"),
    [("torch.version.hip", "6.4", "ROCm"), ("torch.backends.mps.is_available", lambda: True, "Apple's GPU")],
)
def test_a_gpu_that_steno_does_not_use_is_named(monkeypatch, what, value, named):
    monkeypatch.setattr(what, value)

    assert named in _device(torch.device("cpu"), "fastconformer", "float32")["note"]


def test_a_gpu_that_is_not_there_is_named(capsys):
    assert cli.main(["doctor", "--device", "cuda:99"]) == 2
    assert "this machine, or this build of torch, has no CUDA" in capsys.readouterr().err
