"""The log of a resumed run is that of one that never stopped."""

import json
import resource

import pytest

from training.errors import ResumeError, TrainingError
from training.journal import Journal, best_of


def steps(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_steps_that_will_be_done_again_are_struck_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 2, "wer": {"all": 1}}\n{"step": 3}\n{"step"')

    journal = Journal(path, steps=2)
    journal.write(step=3, loss=0.5)
    journal.close()

    assert steps(path) == [1, 2, 2, 3]
    assert json.loads(path.read_text().splitlines()[-1]) == {"step": 3, "loss": 0.5}


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"loss": 1}'])
def test_a_damaged_log_is_refused(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_text(line + "\n")

    with pytest.raises(ResumeError, match="damaged"):
        Journal(path, steps=5)


@pytest.mark.parametrize("read", [lambda path: Journal(path, steps=5), best_of])
def test_a_log_that_cannot_be_read_is_refused_by_its_path(tmp_path, read):
    (tmp_path / "log.jsonl").mkdir()

    with pytest.raises(ResumeError, match=r"log\.jsonl cannot be read: Is a directory"):
        read(tmp_path / "log.jsonl")


@pytest.mark.parametrize("has_state", [False, True])
def test_a_log_that_cannot_be_written_names_only_a_state_that_is_there(tmp_path, has_state):
    if has_state:
        (tmp_path / "state.pt").touch()
    journal = Journal(tmp_path / "log.jsonl", 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # a limit of files in place of one of the disk
    try:
        with pytest.raises(TrainingError, match=r"log.jsonl cannot be written: File too large") as raised:
            journal.write(step=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.close()

    assert str(raised.value).endswith("; --resume goes on from the last state" if has_state else "File too large")
