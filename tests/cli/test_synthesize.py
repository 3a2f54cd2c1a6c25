"""`steno train synthesize` makes clips that training reads, and reports errors in one line."""

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


def run(text, out, *more, hours="0.002"):
    return cli.main(["train", "synthesize", str(text), "--out", str(out), "--hours", hours, *more])


@FLITE
def test_clips_have_the_hours_and_the_voices_that_were_asked_for(text, tmp_path, capsys):
    assert run(text, tmp_path / "out", "--without", "rms", "kal") == 0

    clips = read_manifest(tmp_path / "out" / "manifest.jsonl", split="train")
    assert capsys.readouterr().out == f"{len(clips)} clips, 0.00 h; 0 sentences left out\n"
    seconds = [clip.seconds for clip in clips]
    assert sum(seconds) >= 7.2 > sum(seconds[:-1])
    assert sorted(clip.text for clip in clips[:3]) == SENTENCES
    assert {clip.source for clip in clips} == {"flite"}
    assert {clip.speaker for clip in clips} <= {"flite/slt", "flite/awb", "flite/kal16"}


def test_without_flite_its_package_is_named(text, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert run(text, tmp_path / "out") == 2

    err = capsys.readouterr().err
    assert "Debian's package flite has it" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@FLITE
@pytest.mark.parametrize("without", [["nobody"], ["slt", "awb", "rms", "kal16", "kal"]])
def test_a_voice_that_does_not_exist_or_none_left_is_one_line(text, tmp_path, capsys, without):
    assert run(text, tmp_path / "out", "--without", *without) == 2

    assert "--without leaves voices out of slt, awb, rms, kal16, kal, and not all" in capsys.readouterr().err


def test_a_text_that_is_not_there_is_named(tmp_path, capsys):
    assert run(tmp_path / "gone.txt", tmp_path / "out") == 2

    assert "gone.txt: No such file" in capsys.readouterr().err


@FLITE
def test_a_folder_that_cannot_be_made_is_named(text, capsys):
    assert run(text, text / "out") == 2

    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(("hours", "more"), [("-1", []), ("0", []), ("1", ["--seed=-1"])])
def test_wrong_usage_is_refused(text, tmp_path, hours, more):
    with pytest.raises(SystemExit) as error:
        run(text, tmp_path / "out", *more, hours=hours)

    assert error.value.code == 2
