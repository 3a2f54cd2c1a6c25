"""Pictures of measurements show their figures; those of the documentation are of what was measured."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "docs/measured/peers-cpu.json"


def draw(out, *files):
    command = [sys.executable, "-m", "benchmarks", "plots", str(out), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def texts(picture):
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8"))


def test_the_documentations_picture_is_of_its_measurement(tmp_path):
    out = tmp_path / "new" / "peers.svg"

    assert not draw(out, PEERS).returncode

    assert texts(out) == texts(ROOT / "docs/img/peers-cpu.svg")
    ratios = [row["ratio"] for row in json.loads(PEERS.read_text())["rows"] if row["engine"].endswith("float32")]
    assert {f"{ratio:.2f}" for ratio in ratios} <= set(texts(out))


def test_latencies_are_drawn_by_model_and_length(tmp_path):
    rows = [
        {"dtype": "float32", "seconds": seconds, "batch": batch, "p95": 0.1 * batch, "rtfx": 50.0}
        for seconds in (2.0, 7.0)
        for batch in (1, 4)
    ]
    measured = tmp_path / "latency.json"
    document = {"benchmark": "latency", "model": "some.nemo", "decoder": "ctc", "device": "cpu", "threads": 2}
    measured.write_text("a table\n" + json.dumps(document | {"rows": rows}))

    assert not draw(tmp_path / "latency.svg", measured).returncode

    assert {"some ctc float32, 2 s", "some ctc float32, 7 s"} <= set(texts(tmp_path / "latency.svg"))


@pytest.mark.parametrize("benchmark", ["cost", "latency"])
def test_what_there_is_no_picture_of_is_said(tmp_path, benchmark):
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({"benchmark": benchmark, "rows": []}))

    done = draw(tmp_path / "out.svg", PEERS, measured)

    assert done.returncode == 2
    assert "there are pictures of latency or peers" in done.stderr
