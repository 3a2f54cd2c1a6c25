"""The machine of a figure is described wherever it is measured."""

import torch

from benchmarks.environment import describe


def test_the_commit_is_unknown_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert describe(torch.device("cpu"))["commit"] == "unknown"
