"""Simulated replicas answer every request, and the documentation has the simulated figures of each policy."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import queueing
from benchmarks.balancing import POLICIES, main, simulate
from benchmarks.budget import Cost
from benchmarks.queueing import Ours, Request, Staged, arrivals
from benchmarks.queueing import simulate as simulate_one

COST = Cost(0.0312, 0.00801, 0.00009)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_replica_is_a_queue(policy):
    requests = arrivals("poisson", 60.0, 100.0, seed=2)

    alone = simulate_one(requests, Staged(60.0, Ours(60.0, 1 / COST.second)), COST).done

    assert simulate(requests, 1, policy, COST, 60.0) == pytest.approx(alone)


@pytest.mark.parametrize(("policy", "waits"), [("round robin", True), ("least connections", False)])
def test_round_robin_sends_work_to_busy_replicas(policy, waits):
    requests = [Request(0.0, 600.0), Request(0.1, 5.0), Request(0.7, 5.0)]

    *_, last = simulate(requests, 2, policy, COST, 60.0)

    assert (last > COST.of(1, 5.0) + 0.01) == waits


@pytest.mark.slow
def test_the_documentations_row_is_that_of_the_command():
    requests = arrivals("poisson", 2 * 0.5 / COST.second, 1200.0, seed=1)
    page = (Path(__file__).parents[2] / "docs/capacity.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| 2 \| singly, 0\.5 \| (.*) \|$", page, re.MULTILINE)

    for policy, cell in zip(POLICIES, row.split(" | "), strict=True):
        latencies = simulate(requests, 2, policy, COST, 60.0)
        short = [latency for latency, request in zip(latencies, requests, strict=True) if request.seconds < 60]
        shown = [float(number) for number in re.findall(r"[\d.]+", cell)][:2]
        assert shown == pytest.approx(np.percentile(short, [50, 99]), abs=0.006)


def test_a_row_without_long_recordings_has_no_median_of_them(monkeypatch, capsys):
    """JSON has no NaN."""
    monkeypatch.setattr("sys.argv", ["balancing", "--replicas", "2", "--loads", "0.3", "--duration", "10"])

    main()

    _, line, *_, document = capsys.readouterr().out.splitlines()
    row = json.loads(document)["rows"][0]
    assert row["long_p50"] is None
    assert row["p50"] > 0
    assert line.split()[-1] == f"{row['p99']:.2f}"


@pytest.mark.parametrize("run", [main, queueing.main], ids=["balancing", "queueing"])
def test_too_short_a_duration_is_refused(run, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmark", "--duration", "0"])

    with pytest.raises(SystemExit, match="2"):
        run()

    assert "no short recording" in capsys.readouterr().err
