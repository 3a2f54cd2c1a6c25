"""`steno batch` writes a row for each recording, once, even if it is killed and run again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

import cli
from tests.service.serving import wait_for

HYBRID = "hybrid-tdt-ctc-bpe"


@pytest.fixture
def expected(golden):
    return {
        f"{name}.wav": record["alone"]["transducer"]["text"]
        for name, record in json.loads((golden / HYBRID / "expected.json").read_text())["clips"].items()
    }


@pytest.fixture
def batch(golden):
    """Run the command with the model of the golden texts."""
    return lambda *arguments: cli.main(["batch", "--model", str(golden / HYBRID / "model.nemo"), *map(str, arguments)])


@pytest.fixture
def archive(golden, tmp_path):
    """The golden clips, with a file among them that is not audio."""
    folder = tmp_path / "archive"
    folder.mkdir()
    for clip in (golden / "clips").glob("*.wav"):
        (folder / clip.name).symlink_to(clip.resolve())
    (folder / "page.wav").write_bytes(b"<html>not found</html>" + bytes(90_000))
    return folder


def rows_in(folder):
    return [json.loads(line) for shard in sorted(folder.glob("*.jsonl")) for line in shard.read_text().splitlines()]


def written(path):
    """The inode of a file, and when it was written."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def summary_of(captured):
    return json.loads(captured.out.splitlines()[-1])


def test_a_folder_becomes_rows_and_a_bad_file_is_one_of_them(batch, archive, expected, tmp_path, capsys):
    out = tmp_path / "out"

    assert batch(archive, out, "--shard-hours", "0.001") == 1

    rows = {row["audio"]: row for row in rows_in(out)}
    assert len(rows) == len(rows_in(out)) == len(expected) + 1
    assert {name: row["text"] for name, row in rows.items() if row["error"] is None} == expected
    assert rows["page.wav"]["error"].startswith("the file is in no known audio format")
    assert (rows["page.wav"]["duration"], rows["page.wav"]["words"]) == (None, None)
    assert rows["slt-12s.wav"]["duration"] == 12.0
    assert rows["slt-12s.wav"]["words"][0].keys() == {"text", "start", "end", "confidence"}
    summary = summary_of(capsys.readouterr())
    assert (summary["recordings"], summary["failed"], summary["left_out"]) == (len(rows), 1, 0)
    assert summary["hours"] == pytest.approx(sum(row["duration"] or 0 for row in rows.values()) / 3600)
    run = summary["run"]
    assert run["rtfx"] == pytest.approx(3600 * run["hours"] / run["seconds"])
    assert json.loads((out / "_job" / "summary.json").read_text()) == summary


def test_input_and_output_may_be_prefixes_of_an_object_store(batch, archive, expected, capsys):
    store = fsspec.filesystem("memory")
    store.store.clear()
    for path in archive.iterdir():
        store.pipe_file(f"/calls/{path.name}", path.read_bytes())

    assert batch("memory://calls", "memory://texts", "--detail", "text") == 1

    lines = b"".join(store.cat(path) for path in store.glob("/texts/*.jsonl")).splitlines()
    rows = {row["audio"]: row for row in map(json.loads, lines)}
    assert {name: row["text"] for name, row in rows.items() if row["error"] is None} == expected
    assert rows["page.wav"].keys() == {*("audio", "duration", "text", "error"), *("language", "language_probability")}


@pytest.mark.slow
def test_a_killed_run_resumes_and_nothing_is_lost_or_doubled(batch, golden, archive, expected, tmp_path, capsys):
    """The last recording is a pipe into which nobody writes, so that the run is surely in the middle when it dies."""
    names = [*sorted(expected), "page.wav"]
    lines = [{"audio": str(archive / name), "duration": 20 + number} for number, name in enumerate(names)]
    pipe = tmp_path / "last.wav"
    os.mkfifo(pipe)
    lines.append({"audio": str(pipe), "duration": 0.5})
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    options = [str(manifest), str(out), "--shard-hours", "0.01", "--batch-seconds", "2", "--dtype", "float32"]
    command = [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", "batch", "--model"]

    running = subprocess.Popen([*command, str(golden / HYBRID / "model.nemo"), *options])
    try:
        wait_for(lambda: running.poll() is not None or len(list(out.glob("shard-*.jsonl"))) >= 3)
    finally:
        running.kill()
    assert running.wait() == -signal.SIGKILL
    finished = {path: written(path) for path in out.glob("shard-*.jsonl")}
    pipe.unlink()
    pipe.symlink_to(archive / "slt-1s.wav")

    assert batch(*options) == 1

    captured = capsys.readouterr()
    rows = rows_in(out)
    assert sorted(row["audio"] for row in rows) == sorted(line["audio"] for line in lines)
    texts = {Path(row["audio"]).name: row["text"] for row in rows if row["error"] is None}
    assert texts == expected | {"last.wav": expected["slt-1s.wav"]}
    assert {path: written(path) for path in finished} == finished
    summary = summary_of(captured)
    assert summary["recordings"] == len(lines)
    assert summary["run"]["recordings"] == len(lines) - sum(len(path.read_text().splitlines()) for path in finished)

    assert batch(*options) == 1
    assert summary_of(capsys.readouterr())["run"]["recordings"] == 0
    assert json.loads((out / "_job" / "summary.json").read_text()) == summary


def test_wrong_usage_is_one_line(batch, archive, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    batch(archive, out, "--max-seconds", "1")

    for arguments, error in {
        (tmp_path / "none", tmp_path / "a"): "none: No such file or directory",
        (tmp_path / "empty", tmp_path / "a"): "empty: no recordings",
        (
            archive,
            out,
        ): "holds a job whose max seconds was 1.0, and now it is 14400.0; another job needs another folder",
        (archive, out, "--max-seconds", "1", "--itn"): "holds a job whose itn was False, and now it is True",
        ("teapot://archive", tmp_path / "a"): "teapot://archive: Protocol not known: teapot",
    }.items():
        capsys.readouterr()
        assert batch(*arguments) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err.count("\n")) == ("", 1)
        assert error in captured.err
        assert captured.err.startswith("steno: ")
