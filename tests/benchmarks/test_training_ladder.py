"""Rungs that no figure follows from are refused before they are measured."""

import pytest

from benchmarks import training_ladder


@pytest.mark.parametrize(("only", "message"), [("5", "a rung in float32 too"), ("6", "invalid choice: 6")])
def test_rungs_that_cannot_be_compared_are_refused(only, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["training_ladder", "manifest.jsonl", "--vocabulary", "file", "--only", only])

    with pytest.raises(SystemExit):
        training_ladder.main()

    assert message in capsys.readouterr().err
