"""`steno train synthesize` makes clips that training reads, adds to them, and reports errors in one line."""

import json

import pytest

import cli
from training.manifest import read_manifest

SENTENCES = ["he opened the door", "nobody was there but the wind", "she had left in the morning"]
FLITE = pytest.mark.program("flite")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES))
    return path


def run(text, out, *more):
    return cli.main(["train", "synthesize", str(text), "--out", str(out), *more])


@FLITE
def test_more_can_be_added_and_the_same_comes_out_again(text, tmp_path, capsys):
    for clips in ("2", "6"):
        assert run(text, tmp_path / "grown", "--clips", clips, "--jobs", "2", "--without", "rms", "kal") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "6 clips, 0.00 h; 0 sentences left out"
    assert run(text, tmp_path / "whole", "--clips", "6", "--without", "rms", "kal") == 0

    grown, whole = ((tmp_path / name / "manifest.jsonl").read_text() for name in ("grown", "whole"))
    assert grown == whole
    for line in map(json.loads, grown.splitlines()):
        assert (tmp_path / "grown" / line["audio"]).read_bytes() == (tmp_path / "whole" / line["audio"]).read_bytes()
    clips = read_manifest(tmp_path / "grown" / "manifest.jsonl", split="train")
    assert sorted(clip.text for clip in clips) == sorted(2 * SENTENCES)
    assert {clip.source for clip in clips} == {"flite"}
    assert {clip.speaker for clip in clips} <= {"flite/slt", "flite/awb", "flite/kal16"}


@FLITE
def test_hours_are_counted(text, tmp_path):
    assert run(text, tmp_path / "out", "--hours", "0.002") == 0

    seconds = [clip.seconds for clip in read_manifest(tmp_path / "out" / "manifest.jsonl")]
    assert sum(seconds) >= 7.2 > sum(seconds[:-1])


def test_without_flite_its_package_is_named(text, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert run(text, tmp_path / "out", "--clips", "1") == 2

    err = capsys.readouterr().err
    assert "Debian's package flite has it" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@FLITE
def test_another_seed_wants_another_folder(text, tmp_path, capsys):
    run(text, tmp_path / "out", "--clips", "1")

    assert run(text, tmp_path / "out", "--clips", "2", "--seed", "1") == 2

    assert "was begun with other seed" in capsys.readouterr().err


@FLITE
@pytest.mark.parametrize("without", [["nobody"], ["slt", "awb", "rms", "kal16", "kal"]])
def test_a_voice_that_does_not_exist_or_none_left_is_one_line(text, tmp_path, capsys, without):
    assert run(text, tmp_path / "out", "--clips", "1", "--without", *without) == 2

    assert "--without leaves voices out of slt, awb, rms, kal16, kal, and not all" in capsys.readouterr().err


def test_a_text_that_is_not_there_is_named(tmp_path, capsys):
    assert run(tmp_path / "gone.txt", tmp_path / "out", "--clips", "1") == 2

    assert "gone.txt: No such file" in capsys.readouterr().err


@FLITE
def test_a_folder_that_cannot_be_made_is_named(text, capsys):
    assert run(text, text / "out", "--clips", "1") == 2

    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--clips", "0"],
        ["--hours", "-1"],
        ["--clips", "1", "--hours", "1"],
        ["--clips", "1", "--seed=-1"],
    ],
)
def test_wrong_usage_is_refused(text, tmp_path, more):
    with pytest.raises(SystemExit) as error:
        run(text, tmp_path / "out", *more)

    assert error.value.code == 2
