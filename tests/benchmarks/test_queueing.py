"""The simulation answers every request once, and the documentation's figures are of it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.budget import Cost
from benchmarks.queueing import LONGEST, OneByOne, Ours, Request, Window, arrivals, simulate

ROOT = Path(__file__).parents[2]
COST = Cost(1.0, 0.1, 0.0)


def policies():
    return [OneByOne(), Window(), Ours(60.0, 10.0)]


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: type(policy).__name__)
def test_a_request_alone_takes_what_its_batch_costs(policy):
    (latency,) = simulate([Request(5.0, 10.0)], policy, COST).done

    waited = 0.1 if isinstance(policy, Window) else 0.0
    assert latency == pytest.approx(waited + 1.0 + 0.1 * 10.0)


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: type(policy).__name__)
def test_every_request_is_answered_after_it_came(policy):
    requests = arrivals("bursts", 5.0, 200.0, seed=3)

    latencies = simulate(requests, policy, COST).done

    assert len(latencies) == len(requests) > 50
    assert min(latencies) > COST.batch


def test_a_long_recording_is_done_with_its_last_part():
    parts = 5

    (latency,) = simulate([Request(0.0, parts * LONGEST)], OneByOne(), COST).done

    assert latency == pytest.approx(parts * COST.of(1, LONGEST))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["poisson", "bursts"])
def test_as_much_audio_comes_as_was_asked_for(pattern):
    requests = arrivals(pattern, 100.0, 20_000.0, seed=1)

    assert sum(request.seconds for request in requests) / 20_000.0 == pytest.approx(100.0, rel=0.05)


def test_the_documentations_figures_are_those_of_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "queueing", "--loads", "0.3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    kept = json.loads((ROOT / "docs/measured/queueing.json").read_text(encoding="utf-8"))
    again = json.loads(done.stdout.splitlines()[-1])
    assert again["rows"] == [row for row in kept["rows"] if row["load"] == 0.3]
    assert {name: value for name, value in kept.items() if name != "rows"} == {
        name: value for name, value in again.items() if name != "rows"
    }


def test_the_page_shows_what_was_simulated():
    rows = json.loads((ROOT / "docs/measured/queueing.json").read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs/capacity.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (0\.\d) \| (\w+).*\*\*([\d.]+)\*\*, \*\*([\d.]+)\*\* s \|", page, re.MULTILINE)
    patterns = {"singly": "poisson", "bursts": "bursts"}
    of_ours = {(row["arrivals"], row["load"]): row for row in rows if row["policy"] == "steno"}

    assert len(shown) == 6
    for load, arrives, p50, p99 in shown:
        row = of_ours[patterns[arrives], float(load)]
        assert float(p50) == pytest.approx(row["p50"], rel=0.05)
        assert float(p99) == pytest.approx(row["p99"], rel=0.05)
