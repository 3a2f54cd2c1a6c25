"""`steno info` describes a checkpoint, for people and for programs."""

import json

import cli
import models


def test_json_is_the_models_info(golden, capsys):
    path = str(golden / "hybrid-tdt-ctc-bpe" / "model.nemo")

    assert cli.main(["info", path, "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == models.load_model(path).info()


def test_the_table_has_a_line_for_each_fact_that_is_known(golden, capsys):
    path = str(golden / "hybrid-tdt-ctc-bpe" / "model.nemo")

    assert cli.main(["info", path]) == 0

    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    facts = {name: value.strip() for name, value in rows.items()}
    assert facts["decoders"] == "tdt, ctc"
    assert facts["durations"] == "0, 1, 2, 3, 4"
    assert facts["sample rate"] == "16,000"
    assert facts["vocabulary: size"] == "128"
    assert facts["capabilities: translation"] == "no"
    assert "languages" not in facts


def test_a_language_identifier_is_described_by_its_languages(golden, capsys):
    assert cli.main(["info", str(golden / "identifier-statistics" / "model.nemo"), "--json"]) == 0

    info = json.loads(capsys.readouterr().out)
    assert (info["family"], info["class"]) == ("language identifier", "EncDecSpeakerLabelModel")
    assert info["languages"] == ["ceb", "de", "en", "fr", "he", "zh"]
