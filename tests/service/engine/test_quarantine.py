"""Fast paths that failed are remembered by setup; what is in the file, or that it cannot be written, ends nothing."""

import pytest

from service.engine.quarantine import Quarantine


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "steno" / "fast_paths.json"


def test_what_was_kept_is_found_by_its_setup_alone(file):
    Quarantine().keep("H100, driver 570", "loop", "hung")
    Quarantine().keep("H100, driver 570", "attention", "disagreed")

    assert Quarantine().find("H100, driver 570") == {"loop": "hung", "attention": "disagreed"}
    assert Quarantine().find("H100, driver 580") == {}


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": []}', "\x00"])
def test_a_file_that_says_something_else_counts_as_empty(file, text):
    file.parent.mkdir()
    file.write_text(text)

    assert Quarantine().find("a") == {}
    Quarantine().keep("b", "loop", "failed")
    assert Quarantine().find("b") == {"loop": "failed"}


def test_a_folder_that_cannot_be_written_is_logged(file, caplog):
    file.parent.write_text("a file")

    Quarantine().keep("a", "loop", "hung")

    assert "what an engine keeps cannot be written" in caplog.text
