"""The documentation lists all settings, metrics, errors and faults, and none that are gone."""

import re

import pytest

from audio.errors import AudioError, DecoderCrashedError
from service.http.error_codes import ErrorCode
from service.metrics import Metrics
from service.settings import Settings
from tests.reference import DOCS, TABLES, written

OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")

AUDIO_ERRORS = (*AudioError.__subclasses__(), DecoderCrashedError)


@pytest.mark.parametrize("page", TABLES)
def test_the_tables_are_those_of_the_code(page):
    assert (DOCS / page).read_text(encoding="utf-8") == written(page), "make reference"


@pytest.mark.parametrize("name", sorted(set(vars(Metrics())) - {"registry", "_of_models"}))
def test_no_metric_is_exported_that_nothing_sets(name):
    code = [path for path in (DOCS.parent / "service").rglob("*.py") if path.name != "metrics.py"]
    metrics = (DOCS.parent / "service" / "metrics.py").read_text(encoding="utf-8")
    described = re.search(rf"self\.{name}\.labels\(.*\)\.set\(", metrics)  # what runs is said by Metrics itself

    assert described or any(f"metrics.{name}." in path.read_text(encoding="utf-8") for path in code)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_read(name):
    code = list((DOCS.parent / "service").rglob("*.py"))

    assert any(f"settings.{name}" in text or f"self.{name}" in text for text in (p.read_text() for p in code))


@pytest.mark.parametrize("error", AUDIO_ERRORS)
def test_every_error_of_a_recording_is_in_the_table(error):
    assert ErrorCode[error.code.upper()].value.status == 400


@pytest.mark.parametrize("code", ErrorCode)
def test_each_error_in_the_list_can_occur(code):
    if str(code) in {error.code for error in AUDIO_ERRORS}:
        return
    texts = [path.read_text(encoding="utf-8") for path in (DOCS.parent / "service" / "http").rglob("*.py")]

    assert any(f"ErrorCode.{code.name}" in text for text in texts)


def test_every_fault_has_its_test():
    section = OPERATIONS.partition("## Faults")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|.*\|((?: `test_\w+`,?)+) \|$", section, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"test_\w+", row)]
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "tests").rglob("test_*.py"))

    assert len(rows) == len(re.findall(r"^\|", section, re.MULTILINE)) - 2
    assert [name for name in named if f"def {name}(" not in tests] == []
