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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("picture", "measured"),
    [
        ("peers-cpu", "peers-cpu"),
        ("latency-cpu", "latency-110m-cpu"),
        ("search-cpu", "search-cpu"),
        ("roofline", "roofline-0.6b-h200"),
        ("losses-cpu", "losses-cpu-*"),
        ("training-curve", "training-curve"),
    ],
)
def test_the_documentations_pictures_are_of_their_measurements(tmp_path, picture, measured):
    out = tmp_path / "new" / "drawn.svg"

    assert not draw(out, *sorted(ROOT.glob(f"docs/measured/{measured}.json"))).returncode

    assert texts(out) == texts(ROOT / f"docs/img/{picture}.svg")


def test_a_picture_of_peers_has_their_ratios(tmp_path):
    out = tmp_path / "peers.svg"

    assert not draw(out, PEERS).returncode

    ratios = [row["ratio"] for row in json.loads(PEERS.read_text())["rows"]]
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


def test_searches_are_drawn_by_form_and_batch(tmp_path):
    rows = [
        {"transducer": transducer, "batch": batch, "form": form, "ratio": ratio}
        for transducer in ("rnnt", "tdt")
        for batch in (1, 8)
        for form, ratio in (("label looping", 1.0), ("flat", 1.25), ("look-ahead", 0.75))
    ]
    measured = tmp_path / "search.json"
    measured.write_text(json.dumps({"benchmark": "search", "clip_seconds": 10.0, "device": "cpu", "rows": rows}))

    assert not draw(tmp_path / "search.svg", measured).returncode

    assert {"RNNT", "TDT", "flat", "look-ahead", "1.25", "0.75"} <= set(texts(tmp_path / "search.svg"))
    assert "label looping" not in texts(tmp_path / "search.svg")


def test_losses_are_drawn_by_dtype(tmp_path):
    rows = [
        {"head": "rnnt", "clips": 4, "dtype": dtype, "engine": "Steno", "seconds": 2, "peak_mb": 3, "all_scores_mb": 4}
        for dtype in ("float32", "bfloat16")
    ]
    measured = tmp_path / "losses.json"
    about = {"benchmark": "losses", "seconds": 10.0, "vocabulary": 28, "device": "cpu", "threads": 2}
    measured.write_text(json.dumps(about | {"dtype": ["float32", "bfloat16"], "rows": rows}))

    assert not draw(tmp_path / "losses.svg", measured).returncode

    drawn = [text for text in texts(tmp_path / "losses.svg") if text.startswith("Steno")]
    assert drawn == ["Steno: RNNT, 28 labels, bfloat16", "Steno: RNNT, 28 labels, float32"]


@pytest.mark.parametrize("benchmark", ["offline", "latency"])
def test_a_benchmark_without_a_picture_is_an_error(tmp_path, benchmark):
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({"benchmark": benchmark, "rows": []}))

    done = draw(tmp_path / "out.svg", PEERS, measured)

    assert done.returncode == 2
    assert "draw one of latency, losses, " in done.stderr
    assert f", not {' with '.join(sorted({benchmark, 'peers'}))}" in done.stderr


def test_files_that_would_not_be_drawn_are_an_error(tmp_path):
    done = draw(tmp_path / "out.svg", PEERS, PEERS)

    assert done.returncode == 2
    assert "a picture of peers is of one file" in done.stderr
