"""Real replicas behind a real balancer, for a moment; and the weight that an agent computes from metrics."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policies import POLICIES, _weight

ROOT = Path(__file__).parents[2]


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_more_audio_waits_the_less_a_replica_weighs_and_never_nothing(one, other):
    def weight(waiting):
        series = "".join(f'steno_queue_audio_seconds{{model="{name}"}} {waiting / 2}\n' for name in "ab")
        return _weight(f'# HELP steno_queue_audio_seconds Audio.\n{series}steno_queue_depth{{model="a"}} 1000.0\n')

    assert 1 <= weight(max(one, other)) <= weight(min(one, other)) <= 100
    assert (weight(0), weight(30)) == (100, 50)


@pytest.mark.long
@pytest.mark.program("haproxy")
def test_each_policy_is_measured_and_every_request_answered():
    command = [sys.executable, "-m", "benchmarks", "policies", "samples/austen.flac"]
    command += ["--rounds", "1", "--seconds", "5", "--rate", "2", "--long-every", "4", "--long-seconds", "50"]

    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)

    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [row["policy"] for row in rows] == list(POLICIES)
    assert {row["requests"] for row in rows} == {rows[0]["requests"]}
    assert all(row["requests"] > 1 and row["errors"] == 0 and 0 < row["p50"] <= row["p99"] for row in rows)
