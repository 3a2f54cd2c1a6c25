import json
import logging

import pytest

from service import logs


@pytest.fixture(autouse=True)
def restore_logging():
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def test_json_lines_hold_the_event_and_its_fields(capsys):
    logs.configure("json", "info")

    logging.getLogger("steno").info("request", extra={"status": 200})

    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "request"
    assert line["status"] == 200
    assert line["level"] == "INFO"
    assert line["time"].endswith("+00:00")


def test_json_lines_stay_one_line_with_a_traceback(capsys):
    logs.configure("json", "info")

    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("steno").exception("failed")

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "ValueError: broken" in json.loads(lines[0])["error"]


@pytest.mark.parametrize(("level", "logger"), [("warning", "steno"), ("info", "httpx2")])
def test_lower_levels_and_the_requests_of_a_download_are_not_logged(level, logger, capsys):
    logs.configure("text", level)

    logging.getLogger(logger).info("GET a signed address")

    assert capsys.readouterr().err == ""


def test_auto_is_json_without_a_terminal():
    assert logs.resolve_format("auto") == "json"
    assert logs.resolve_format("text") == "text"


def test_text_lines_cannot_be_forged(capsys):
    logs.configure("text", "info")
    forged = "a\n12:00:00 info    request\u2028b\r"

    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("steno").exception(forged, extra={"field": forged})

    first, *rest = capsys.readouterr().err.splitlines()
    assert first[8:].startswith(" error  ")
    assert first.endswith("field=a\\n12:00:00 info    request\\u2028b\\r")
    assert rest
    assert all(line.startswith("    ") for line in rest)
