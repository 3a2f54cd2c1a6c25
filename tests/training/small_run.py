"""A run so small that a step takes milliseconds: a few synthetic clips, and a student of two thin layers."""

import json

import pytest
import soundfile
import torch
import yaml

from tests.conftest import GOLDEN
from training.loop import train
from training.recipe_file import read_recipe
from training.run import Run
from training.step import batch_losses

CPU = torch.device("cpu")
CHECKPOINT = GOLDEN / "fastconformer-ctc-bpe" / "model.nemo"
# Clips with speech, and their transcripts.
TEXTS = {
    "espeak-2s": "the water was",
    "slt-1s": "and then",
    "awb-4s": "it is not in the house",
    "rms-6s": "you would be on the other side of it",
}
# A student's predictor and joint.
TDT = {"predictor_width": 12, "joint_width": 16}
RNNT = TDT | {"durations": None}


def manifest(folder, texts=None, copies=1):
    """Write a manifest of golden clips; returns its path."""
    path = folder / "manifest.jsonl"
    rows = []
    for _ in range(copies):
        for name, text in (TEXTS if texts is None else texts).items():
            audio = GOLDEN / "clips" / f"{name}.wav"
            rows.append({"audio": str(audio), "duration": soundfile.info(audio).duration, "text": text})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def document(folder, **changes):
    """A recipe as YAML holds it, to be changed at will; needs ``manifest(folder)``."""
    recipe = {
        "seed": 3,
        "steps": 12,
        "data": {"manifests": ["manifest.jsonl"]},
        "batches": {"seconds": 8, "buckets": 2},
        "student": {"layers": 2, "width": 16, "heads": 2, "subsampling_channels": 8},
        "optimizer": {"peak": 0.003, "warmup": 2},
        "augmentation": {"spec_augment": {}, "noise": {"share": 0.5, "snr_db": [5, 30]}},
        "vocabulary": str(CHECKPOINT),
        "report_every": 4,
        "save_every": 5,
    }
    return recipe | changes


def new_run(folder, out="out", **changes):
    """A run in ``folder / out``, of golden clips if there is no other manifest."""
    if not (folder / "manifest.jsonl").exists():
        manifest(folder)
    (folder / out).mkdir(exist_ok=True)
    return Run(read_recipe(recipe_file(folder, **changes)), folder / out, CPU)


def first_batch(run):
    batches = run.batches()
    batch = next(batches)
    batches.close()
    return batch


def finish(run, **options):
    """Train without measuring word errors; returns the lines that were reported."""
    lines = []
    train(run, **{"word_errors": None, "report": lines.append} | options)
    return lines


def log(folder):
    """The lines of the log of the run in a folder."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def losses_of(run, last):
    """Train up to a step; returns the losses in the log."""
    finish(run, stops=lambda: run.step >= last)
    return [line["loss"] for line in log(run.folder)]


def assert_resumes(new_run, steps=6):
    """Assert that a run of some steps, made anew by each call, resumes as if it had not stopped in the middle."""
    whole = losses_of(new_run(), steps)
    losses_of(new_run(), steps // 2)
    resumed = new_run()
    resumed.resume()

    assert resumed.step == steps // 2
    assert losses_of(resumed, steps) == whole


def assert_padding_is_free(run, batch, **padded):
    """Assert that loss and gradients of a batch are the same with these tensors of it padded."""
    names = batch.__slots__
    found = []
    for one in (batch, type(batch)(**{name: padded.get(name, getattr(batch, name)) for name in names})):
        run.network.zero_grad()
        loss = batch_losses(run, one).total
        loss.backward()
        found.append((loss.item(), torch.cat([weight.grad.flatten() for weight in run.network.parameters()])))

    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    assert (found[0][1] - found[1][1]).norm() < 1e-3 * found[0][1].norm()


def recipe_file(folder, **changes):
    """Write a recipe; returns its path."""
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document(folder, **changes)), encoding="utf-8")
    return path
