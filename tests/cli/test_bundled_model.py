"""Without --model, the commands use the model that ships, and it is as good as its card says."""

import json
import re
from pathlib import Path

import pytest

import cli
from models.bundled import CHECKPOINT

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "austen.flac"
CARD = CHECKPOINT.with_name("MODEL_CARD.md").read_text(encoding="utf-8")
WER_ROW = re.compile(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+\.\d\d) \| (\d+\.\d\d) \|", re.MULTILINE)


def sentences():
    """The words of the sample, as the model spells them."""
    return re.sub(r"[^a-z' ]", "", SAMPLE.with_suffix(".txt").read_text(encoding="utf-8").lower())


def test_its_licence_is_that_of_the_repository():
    assert "](../../LICENSE)" in CARD
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_sample_is_small_and_may_be_given_to_others():
    assert SAMPLE.stat().st_size < 300_000
    assert "public domain" in SAMPLE.with_name("README.md").read_text(encoding="utf-8")


def test_transcribe_gives_the_words_of_the_sample(capsys):
    assert cli.main(["transcribe", str(SAMPLE), "--device", "cpu"]) == 0

    assert capsys.readouterr().out == sentences() + "\n"


@pytest.mark.slow
@pytest.mark.speech
@pytest.mark.parametrize(("column", "options"), [(3, []), (4, ["--language-model", "none"])])
def test_eval_prints_the_word_error_rates_of_its_card(column, options, speech_dir, capsys):
    stated = {row[0]: float(row[column]) for row in WER_ROW.findall(CARD)}

    arguments = ["eval", str(speech_dir / "manifest.jsonl"), "--split", "dev", "--json", *options]
    assert cli.main([*arguments, "--device", "cpu", "--dtype", "float32"]) == 0

    summary = json.loads(capsys.readouterr().out)
    measured = summary["wer_by_source"] | {"all": summary["wer"]}
    assert stated == {source: pytest.approx(100 * wer, abs=0.05) for source, wer in measured.items()}
