"""End to end, from recordings to transcripts: a student learns a few clips by heart."""

import json

import pytest

from cli.scoring import Score, Scorer
from models import load_model
from tests.conftest import GOLDEN
from tests.training.small_run import RNNT, TDT, finish, new_run
from training.vocabulary import new_vocabulary


def trained(folder, **changes):
    """Train as a recipe says, export, and return the model and the clips."""
    run = new_run(folder, **changes)
    finish(run)
    run.export(folder / "model.nemo")
    return load_model(folder / "model.nemo"), run.examples.takes


def score(model, takes):
    hypotheses = model.transcribe([take.samples(model.sample_rate) for take in takes])
    scorer = Scorer()
    scores = [scorer.score(take.clip.text, one.text, 0) for take, one in zip(takes, hypotheses, strict=True)]
    return sum(scores, Score())


@pytest.mark.long
@pytest.mark.parametrize("transducer", [None, TDT, RNNT], ids=["ctc", "tdt", "rnnt"])
def test_a_handful_of_clips_is_learned_from_their_transcripts_alone(tmp_path, transducer):
    # All of them in one batch: batch norm sees in training what its running statistics say afterwards.
    model, takes = trained(
        tmp_path,
        steps=300,
        batches={"seconds": 30, "buckets": 1},
        student={
            "layers": 2,
            "width": 48,
            "heads": 4,
            "subsampling_channels": 16,
            "transducer": transducer and transducer | {"predictor_width": 48, "joint_width": 64},
        },
        dropout=0.0,
        optimizer={"peak": 0.003, "warmup": 40, "ema": 0.95},
        objective={"ctc": 0.3 if transducer else 1.0},
        augmentation={},
    )

    assert score(model, takes).errors == 0


QUARTZNET = [
    {"filters": 64, "kernel_size": 11, "stride": 2, "residual": False},
    {"filters": 64, "kernel_size": 13, "repeat": 2},
    {"filters": 64, "kernel_size": 15, "repeat": 2},
    {"filters": 96, "kernel_size": 1, "residual": False, "separable": False},
]
LETTERS = " abcdefghijklmnopqrstuvwxyz'"


def fifty_recordings(folder, speech_dir):
    """A manifest of 50 short recordings by three people, no text of which stands there twice; returns the texts."""
    rows = {}
    for line in (speech_dir / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["source"] in {"arctic", "kathleen"} and row["split"] == "train" and 1.2 < row["duration"] < 2.2:
            rows.setdefault(row["text"], row | {"audio": str(speech_dir / row["audio"])})
    chosen = sorted(rows.values(), key=lambda row: row["duration"])[::6][:50]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    return [row["text"] for row in chosen]


SMALL = {"layers": 3, "width": 96, "heads": 4, "subsampling_channels": 32}
ADAMW = {"warmup": 50, "ema": 0.95}
# Of each family a model so small that these recordings are learned in a minute or two of a core.
FAMILIES = {
    "canary": {
        "steps": 600,
        "student": SMALL | {"attention": {"width": 96, "layers": 2, "heads": 4, "positions": 64}},
        "languages": [{"code": "en", "vocabulary": "en.model"}],
        "vocabulary": None,
        # Of the labels only the first words depend on the sound alone; prompts would hide what those cost.
        "objective": {"predict_prompts": False},
        "optimizer": ADAMW | {"peak": 0.001, "decay": 0.4},
        "batches": {"seconds": 30, "buckets": 2, "label_buckets": 1},
    },
    "quartznet": {
        "steps": 400,
        "student": None,
        "convolutional": {"blocks": QUARTZNET},
        "characters": LETTERS,
        "vocabulary": None,
        "optimizer": {"algorithm": "novograd", "peak": 0.02, "betas": [0.95, 0.5], "warmup": 50, "ema": 0.95},
    },
    "tdt": {
        "steps": 500,
        "student": SMALL | {"transducer": TDT | {"predictor_width": 96, "joint_width": 96}},
        "vocabulary": "en.model",
        "objective": {"ctc": 0.3},
        "optimizer": ADAMW | {"peak": 0.003},
    },
    # A released model with 128 mels and without biases gets another vocabulary.
    "tuned": {
        "steps": 400,
        "student": None,
        "initial": str(GOLDEN / "fastconformer-tdt-bpe" / "model.nemo"),
        "vocabulary": "en.model",
        "optimizer": {"peak": 0.01, "warmup": 5, "ema": 0.9},
    },
}


@pytest.mark.long
@pytest.mark.speech
@pytest.mark.parametrize("family", FAMILIES)
def test_fifty_recordings_are_learned_from_their_transcripts_by_each_family(tmp_path, speech_dir, family):
    texts = fifty_recordings(tmp_path, speech_dir)
    (tmp_path / "en.model").write_bytes(new_vocabulary(texts, 96))
    rest = {"batches": {"seconds": 30, "buckets": 2}, "dropout": 0.0, "augmentation": {}, "report_every": 50}

    assert score(*trained(tmp_path, **(rest | FAMILIES[family]))).wer < 0.05
