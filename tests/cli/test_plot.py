"""`steno plot` draws the logs of runs, and names what is none."""

import json

import pytest

import cli


def log(folder, *lines):
    folder.mkdir()
    (folder / "log.jsonl").write_text(
        "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    )
    return str(folder)


def step(number, **more):
    line = {"step": number, "loss": 5 / number, "learning_rate": 1e-3, "audio_seconds": 9.5 * number, "seconds": 0.5}
    return line | {"padding_share": 0.1, "label_padding_share": 0.2, "memory": 2e9} | more


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "png"])
def test_runs_are_drawn_together(tmp_path, capsys, form):
    measured = [{"step": 0, "wer": {"all": 1.0}}, *map(step, range(1, 501)), {"step": 500, "wer": {"all": 0.3}}]
    runs = [log(tmp_path / "a", *measured, '{"step": 501, "lo'), log(tmp_path / "b", step(1))]

    assert cli.main(["plot", *runs, "--out", str(tmp_path / f"runs.{form}")]) == 0

    assert capsys.readouterr().out.strip() == str(tmp_path / f"runs.{form}")
    assert (tmp_path / f"runs.{form}").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "log.jsonl: No such file or directory"),
        ([{"step": 0, "wer": {"all": 1.0}}], "log.jsonl has no step yet"),
        ([step(1), "nonsense\n"], "log.jsonl, line 2: not a line of a run's log"),
        ([step(1), [1]], "log.jsonl, line 2: not a line of a run's log"),
    ],
)
def test_what_is_no_run_is_named(tmp_path, capsys, lines, message):
    folder = str(tmp_path / "gone") if lines is None else log(tmp_path / "run", *lines)

    assert cli.main(["plot", folder, "--out", str(tmp_path / "plot.svg")]) == 2

    assert message in capsys.readouterr().err
