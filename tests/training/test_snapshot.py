"""A state comes back as it was, is replaced in one stroke, and belongs to one run."""

import errno
import subprocess
import sys

import pytest
import torch

from training import snapshot as module
from training.errors import ResumeError, TrainingError
from training.snapshot import read_snapshot, write_snapshot

CPU = torch.device("cpu")
READ_IN_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import torch
from training.errors import ResumeError
from training.snapshot import read_snapshot
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 2**25
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    read_snapshot(Path(sys.argv[1]), torch.device("cpu"))
except ResumeError as error:
    print(error)
"""


def state(step=7):
    weights = {"weight": torch.randn(2, 3), "count": torch.tensor(4)}
    optimizer = {"state": {0: {"step": torch.tensor(7.0)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    return {"identity": '{"seed": 1}', "step": step, "network": weights, "optimizer": optimizer}


def test_it_comes_back_as_it_was(tmp_path):
    written = state()

    write_snapshot(tmp_path / "state.pt", written)
    read = read_snapshot(tmp_path / "state.pt", CPU)

    assert (read["identity"], read["step"]) == ('{"seed": 1}', 7)
    assert torch.equal(read["network"]["weight"], written["network"]["weight"])
    assert read["optimizer"] == written["optimizer"]


@pytest.mark.parametrize("has_state", [False, True])
def test_only_a_state_that_is_there_is_said_to_be_kept(tmp_path, has_state, monkeypatch):
    path = tmp_path / "state.pt"
    if has_state:
        write_snapshot(path, state(step=1))

    def fails(content, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.torch, "save", fails)
    with pytest.raises(TrainingError, match=r"state.pt cannot be written: No space left on device(.*)") as raised:
        write_snapshot(path, state(step=2))

    assert str(raised.value).endswith("; the state before it is kept" if has_state else "No space left on device")


@pytest.mark.parametrize("content", [None, b"", b"nonsense", "half"])
def test_a_file_that_is_not_a_state_is_refused(tmp_path, content):
    path = tmp_path / "state.pt"
    if content == "half":
        write_snapshot(path, state())
        content = path.read_bytes()[: path.stat().st_size // 2]
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ResumeError):
        read_snapshot(path, CPU)


def test_a_state_that_cannot_be_read_is_not_called_damaged(tmp_path):
    (tmp_path / "state.pt").mkdir()

    with pytest.raises(ResumeError, match=r"state\.pt cannot be read: Is a directory$"):
        read_snapshot(tmp_path / "state.pt", CPU)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_state_that_does_not_fit_the_memory_is_not_called_damaged(tmp_path):
    path = tmp_path / "state.pt"
    write_snapshot(path, {"network": {"weight": torch.zeros(2**24)}})  # 64 MiB

    command = [sys.executable, "-c", READ_IN_LITTLE_MEMORY, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)

    assert said.stdout.endswith("state.pt cannot be read: out of memory\n"), said.stderr


def test_a_changed_byte_is_noticed(tmp_path):
    written = state()
    write_snapshot(tmp_path / "state.pt", written)
    content = bytearray((tmp_path / "state.pt").read_bytes())
    place = content.find(written["network"]["weight"].numpy().tobytes())
    assert place > 0
    content[place] ^= 1
    (tmp_path / "state.pt").write_bytes(content)

    with pytest.raises(ResumeError, match=r"damaged \(the checksum of .*/data/"):
        read_snapshot(tmp_path / "state.pt", CPU)
