"""Rows outlive the run that measured them, and are not measured again by the next."""

import json

import pytest

from benchmarks.rows import Rows

ABOUT = {"shape": "toy", "threads": 2}


def measured(rows, calls, cells):
    for cell in rows.missing((number, 1.5) for number in cells):
        calls.append(cell[0])
        rows.add(cell, {"batch": cell[0]}, {"batch": -cell[0]})
    return json.loads(rows.line())


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path):
    path, calls = tmp_path / "out" / "rows.jsonl", []
    measured(Rows("latency", ABOUT, path), calls, [1, 2])
    whole = path.read_text()
    path.write_text(whole[:-5])  # killed while it wrote

    document = measured(Rows("latency", ABOUT, path), calls, [1, 2, 3])

    assert calls == [1, 2, 2, 3]
    assert document == {"benchmark": "latency", **ABOUT, "rows": [{"batch": row} for row in (1, -1, 2, -2, 3, -3)]}
    assert measured(Rows("latency", ABOUT, path), calls, [1, 2, 3]) == document
    assert len(calls) == 4
    assert path.read_text().startswith(whole)


def test_rows_of_another_machine_are_not_mixed_in(tmp_path):
    path = tmp_path / "rows.jsonl"
    measured(Rows("latency", ABOUT, path), [], [1])
    before = path.read_text()

    with pytest.raises(ValueError, match="rows of another run"):
        Rows("latency", ABOUT | {"threads": 4}, path)

    assert path.read_text() == before


def test_without_a_file_nothing_is_kept(tmp_path):
    calls = []
    assert len(measured(Rows("latency", ABOUT), calls, [1, 2])["rows"]) == 4

    assert calls == [1, 2]
    assert not list(tmp_path.iterdir())
