"""`steno train language-model` makes what `--language-model` takes."""

from pathlib import Path

import pytest

import cli
from models.bundled import CHECKPOINT

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "austen.flac"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text("he might have been made\nmore respectable than he was\n" * 5)
    return str(path)


def make(text, out, *options):
    return cli.main(["train", "language-model", text, "--vocabulary", str(CHECKPOINT), "--out", str(out), *options])


def test_a_language_model_of_ones_own_sentences_is_searched_with(text, tmp_path, capsys):
    out = tmp_path / "new" / "amiable.ngrams"

    assert make(text, out, "--weight", "0.2", "--bonus", "0.5") == 0
    assert "n-grams" in capsys.readouterr().out

    for language_model in (str(out), "none"):
        assert cli.main(["transcribe", str(SAMPLE), "--device", "cpu", "--language-model", language_model]) == 0
        assert "respectable" in capsys.readouterr().out


def test_an_error_is_one_line(text, tmp_path, golden, capsys):
    out = tmp_path / "some.ngrams"
    assert make(str(tmp_path / "none.txt"), out) == 2
    assert "none.txt" in capsys.readouterr().err
    assert make(text, out, "--least", "3", "2") == 2
    assert "at least as often" in capsys.readouterr().err

    assert make(text, out) == 0
    other = ["transcribe", str(SAMPLE), "--device", "cpu", "--model"]
    assert cli.main([*other, str(golden / "fastconformer-ctc-bpe" / "model.nemo"), "--language-model", str(out)]) == 2
    assert "made with this model's vocabulary" in capsys.readouterr().err
    assert cli.main([*other, str(golden / "canary-small" / "model.nemo"), "--language-model", str(out)]) == 2
    assert "for CTC and transducers" in capsys.readouterr().err
