"""`steno eval` counts the errors of a model and ends with one JSON object."""

import json
import os
import shutil
import sys

import pytest

import cli

RNNT = "fastconformer-rnnt-bpe"


@pytest.fixture
def evaluate(golden):
    return lambda *arguments: cli.main(["eval", "--model", str(golden / RNNT / "model.nemo"), *map(str, arguments)])


@pytest.fixture
def texts(golden):
    """The model's transcript of each clip."""
    record = json.loads((golden / RNNT / "expected.json").read_text())
    return {name: clip["alone"]["transducer"]["text"] for name, clip in record["clips"].items()}


@pytest.fixture
def manifest(golden, tmp_path, texts):
    """Four clips of two sources; the reference of the last has one word of its text replaced."""
    names = ["slt-12s", "rms-6s", "awb-4s", "espeak-2s"]
    path = tmp_path / "clips.jsonl"
    with path.open("w") as lines:
        for name, source in zip(names, ["flite", "flite", "flite", "espeak"], strict=True):
            shutil.copy(golden / "clips" / f"{name}.wav", tmp_path)
            words = texts[name].split()
            if source == "espeak":
                words[0] = "otherwise"
            split = "train" if name == "awb-4s" else "dev"
            record = {"audio": f"{name}.wav", "text": " ".join(words), "source": source, "split": split}
            lines.write(json.dumps(record) + "\n")
    return path


def test_the_last_line_is_the_summary(evaluate, manifest, texts, capsys):
    assert evaluate(manifest, "--device", "cpu") == 0

    *table, last = capsys.readouterr().out.splitlines()
    summary = json.loads(last)
    espeak_words = len(texts["espeak-2s"].split())
    words = sum(len(texts[name].split()) for name in ("slt-12s", "rms-6s", "awb-4s", "espeak-2s"))
    assert summary["wer_by_source"] == {"espeak": pytest.approx(1 / espeak_words), "flite": 0}
    assert summary["wer"] == pytest.approx(1 / words)
    assert (summary["clips"], summary["failed"], summary["decoder"]) == (4, 0, "rnnt")
    assert (summary["device"], summary["dtype"]) == ("cpu", "float32")
    assert 0 < summary["audio_seconds"] < 40
    assert summary["rtfx"] > 0
    assert [line.split()[0] for line in table] == ["source", "espeak", "flite", "all"]


def test_a_source_named_all_has_a_row_of_its_own(evaluate, manifest, capsys):
    manifest.write_text(manifest.read_text().replace('espeak"', 'all"'))

    assert evaluate(manifest, "--device", "cpu") == 0

    *table, _ = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in table[1:]] == [["all", "1"], ["flite", "3"], ["all", "4"]]


@pytest.mark.parametrize(
    ("options", "clips"), [([], 4), (["--split", "dev"], 3), (["--source", "espeak"], 1), (["--split", "train"], 1)]
)
def test_split_and_source_choose_clips_and_json_prints_nothing_else(evaluate, manifest, options, clips, capsys):
    assert evaluate(manifest, "--json", *options) == 0

    assert json.loads(capsys.readouterr().out)["clips"] == clips


def test_a_clip_that_fails_is_counted_and_the_others_are_scored(evaluate, manifest, capsys):
    (manifest.parent / "espeak-2s.wav").write_bytes(b"")

    assert evaluate(manifest, "--json") == 1

    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert (summary["clips"], summary["failed"], summary["wer"]) == (3, 1, 0)
    assert captured.err == f"{manifest.parent / 'espeak-2s.wav'}: the file is empty\n"


def test_when_every_clip_fails_there_is_no_rate(evaluate, manifest, capsys):
    for path in manifest.parent.glob("*.wav"):
        path.unlink()

    assert evaluate(manifest, "--json") == 1

    summary = json.loads(capsys.readouterr().out)
    assert (summary["wer"], summary["wer_by_source"], summary["clips"], summary["failed"]) == (None, {}, 0, 4)


def test_the_output_has_a_line_for_each_clip(evaluate, manifest, texts, tmp_path):
    output = tmp_path / "clips.out.jsonl"

    assert evaluate(manifest, "--json", "--output", output) == 0

    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record["text"] for record in records] == [
        texts[name] for name in ("slt-12s", "rms-6s", "awb-4s", "espeak-2s")
    ]
    assert [record["errors"] for record in records] == [0, 0, 0, 1]


def test_an_output_that_cannot_be_written_is_an_error_before_the_model_is_loaded(evaluate, manifest, tmp_path, capsys):
    output = tmp_path / "no folder" / "clips.out.jsonl"

    assert evaluate(manifest, "--output", output, "--model", tmp_path / "no model.nemo") == 2

    assert capsys.readouterr().err == f"steno: {output}: No such file or directory\n"


def test_a_file_whose_name_is_no_text_is_written_all_the_same(evaluate, manifest, tmp_path):
    name, output = os.fsdecode(b"caf\xe9.wav"), tmp_path / "clips.out.jsonl"
    shutil.copy(manifest.parent / "espeak-2s.wav", manifest.parent / name)
    manifest.write_text(json.dumps({"audio": name, "text": "a word"}))

    assert evaluate(manifest, "--json", "--output", output) == 0

    assert json.loads(output.read_text())["audio"] == str(manifest.parent / name)


def test_no_clips_is_an_error(evaluate, manifest, capsys):
    assert evaluate(manifest, "--split", "test") == 2

    assert capsys.readouterr().err == f"steno: {manifest} has no clips of split 'test'\n"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"audio": 1, "text": "one"}', ", line 2: 'audio' must be a string"),
        ('{"audio": "a.wav"}', ", line 2) has no transcript"),
        ('{"audio": "a.wav", "text": "one", "offset": 3}', ", line 2) is a part of a file; here a clip is a whole one"),
    ],
)
def test_a_bad_line_is_named(evaluate, manifest, capsys, line, complaint):
    manifest.write_text(manifest.read_text().splitlines()[0] + "\n" + line + "\n")

    assert evaluate(manifest) == 2

    assert complaint in capsys.readouterr().err


def test_packages_that_are_missing_are_named_with_the_extra(evaluate, manifest, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jiwer", None)

    assert evaluate(manifest) == 2

    assert "pip install 'steno[eval]'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.teacher
@pytest.mark.speech
def test_a_released_model_transcribes_read_speech(teacher, speech_dir, capsys):
    arguments = ["eval", str(speech_dir / "manifest.jsonl"), "--split", "dev", "--source", "librispeech"]

    assert cli.main([*arguments, "--model", str(teacher), "--device", "cpu", "--json"]) == 0

    summary = json.loads(capsys.readouterr().out)
    assert summary["clips"] == 60
    assert summary["wer"] <= 0.06
