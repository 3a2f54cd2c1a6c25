"""The rules for Prometheus are valid, tested by promtool's unit tests, and explained."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "prometheus"
GROUPS = yaml.safe_load((FOLDER / "steno.rules.yml").read_text(encoding="utf-8"))["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
TESTS = yaml.safe_load((FOLDER / "steno.tests.yml").read_text(encoding="utf-8"))["tests"]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def promtool(*arguments: str) -> None:
    done = subprocess.run([shutil.which("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.program("promtool")
def test_promtool_finds_no_fault():
    promtool("check", "rules", "steno.rules.yml")
    promtool("check", "config", "--syntax-only", "../compose/prometheus.yml")


@pytest.mark.slow
@pytest.mark.program("promtool")
def test_each_fires_where_it_should_and_nowhere_else():
    promtool("test", "rules", "steno.tests.yml")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_each_is_tested_both_ways_and_explained(alert):
    tested = [test for each in TESTS for test in each["alert_rule_test"] if test["alertname"] == alert["alert"]]
    section = re.search(rf"^- \*\*{alert['alert']}\*\*: (.+)", OPERATIONS, re.MULTILINE)

    assert any("exp_alerts" in test for test in tested)
    assert any("exp_alerts" not in test for test in tested)
    assert section is not None
    assert alert["labels"]["severity"] in ("page", "ticket")


def test_no_alert_is_explained_that_is_gone():
    explained = re.findall(r"^- \*\*(Steno\w+)\*\*: ", OPERATIONS, re.MULTILINE)

    assert explained == [alert["alert"] for alert in ALERTS]


def test_every_metric_in_the_rules_is_exported():
    from service.metrics import Metrics

    exported = {re.sub(r"_(bucket|count|sum|total)$", "", family.name) for family in Metrics().registry.collect()}
    asked = set(re.findall(r"\bsteno_\w+", " ".join(rule["expr"] for group in GROUPS for rule in group["rules"])))

    assert {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in asked} <= exported
