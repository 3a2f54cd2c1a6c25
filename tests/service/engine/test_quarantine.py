"""Fast paths that failed are remembered by setup; what is in the file, or that it cannot be written, ends nothing."""

import pytest

from service.engine.quarantine import Quarantine


@pytest.fixture
def file(tmp_path):
    return tmp_path / "cache" / "fast_paths.json"


def test_what_was_kept_is_found_by_its_setup_alone(file):
    Quarantine(file).keep("H100, driver 570", "loop", "hung")
    Quarantine(file).keep("H100, driver 570", "attention", "disagreed")

    assert Quarantine(file).find("H100, driver 570") == {"loop": "hung", "attention": "disagreed"}
    assert Quarantine(file).find("H100, driver 580") == {}


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": []}', "\x00"])
def test_a_file_that_says_something_else_counts_as_empty(file, text):
    file.parent.mkdir()
    file.write_text(text)

    assert Quarantine(file).find("a") == {}
    Quarantine(file).keep("b", "loop", "failed")
    assert Quarantine(file).find("b") == {"loop": "failed"}


def test_a_folder_that_cannot_be_written_is_logged(file, caplog):
    file.parent.write_text("a file")

    Quarantine(file).keep("a", "loop", "hung")

    assert "a barred fast path cannot be kept" in caplog.text
