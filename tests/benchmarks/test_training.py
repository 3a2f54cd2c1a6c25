"""Steps in several processes, of which only the first has the file of rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_processes_go_on_together_where_the_last_run_stopped(tmp_path):
    rows = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "benchmarks", "training", "--rows", str(rows)]
    command += ["--shape", "toy", "--seconds", "1", "--repeats", "1"]

    def measured(*batch):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, "--batch", *batch], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])["rows"]

    first = measured("1")

    assert measured("1") == first
    assert measured("1", "2")[:1] == first
