"""What engines found out is kept by setup; what is in the file, or that it cannot be written, ends nothing."""

import json

import pytest

from service.engine.kept import BUDGETS, bar, barred


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "steno"


def test_what_was_kept_is_found_by_its_setup_alone(folder):
    for setup, budget in (("setup", 90.0), ("another", 150.0), ("setup", 100.0)):
        BUDGETS.keep(setup, budget)
    bar("H100, driver 570", "loop", "hung")
    bar("H100, driver 570", "attention", "disagreed")

    assert [BUDGETS.find(setup) for setup in ("setup", "another", "none")] == [100.0, 150.0, None]
    assert barred("H100, driver 570") == {"loop": "hung", "attention": "disagreed"}
    assert barred("H100, driver 580") == {}
    assert sorted(one.name for one in folder.iterdir()) == ["budgets.json", "fast_paths.json"]


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '{"a": 1}', '{"a": []}', "\x00"])
def test_a_file_that_says_something_else_counts_as_empty_and_is_replaced(folder, text):
    folder.mkdir()
    (folder / "fast_paths.json").write_text(text)

    assert barred("a") == {}
    bar("b", "loop", "failed")
    assert barred("b") == {"loop": "failed"}


def test_a_file_stays_small(folder):
    for number in range(70):
        BUDGETS.keep(str(number), number)

    assert list(json.loads((folder / "budgets.json").read_text()).values()) == list(range(6, 70))


def test_a_folder_that_cannot_be_written_is_logged(folder, caplog):
    folder.write_text("a file")

    bar("a", "loop", "hung")

    assert "what an engine keeps cannot be written" in caplog.text
