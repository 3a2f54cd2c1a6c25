"""Checkpoints as large as published ones are loaded in hardly more memory than their weights take, and soon."""

import io
import json
import subprocess
import sys
import tarfile

import pytest
import torch
import yaml

from tests.conftest import ROOT
from tests.models.checkpoint import released_like
from tests.models.checkpoint.nemo_files import CONFIG, CONFIGS, TOKENIZER, WEIGHTS, golden_members, put

# What makes the toy a parakeet-tdt-1.1b.
LARGE = {
    "preprocessor.features": 80,
    "encoder.feat_in": 80,
    "encoder.n_layers": 42,
    "encoder.d_model": 1024,
    "encoder.use_bias": True,
    "encoder.subsampling_conv_channels": 256,
    "model_defaults.enc_hidden": 1024,
    "decoder.prednet.pred_hidden": 640,
    "joint.jointnet.joint_hidden": 640,
    "joint.jointnet.pred_hidden": 640,
    "joint.jointnet.encoder_hidden": 1024,
}
MODELS = {
    "jasper_10x5_dr_2020": ({}, 333e6),
    "parakeet_tdt_like": (LARGE, 1068e6),  # of 128 labels, where the published one has 1,024
}
LOAD = """
import json, pathlib, sys, time
import numpy as np
from models import load_model

def peak():  # rusage has that of the process before exec, too
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])

before, began = peak(), time.perf_counter()
model = load_model(sys.argv[1])
model.transcribe([np.zeros(16000, np.float32)])  # until then, some weights are in the file alone
found = {"seconds": time.perf_counter() - began, "bytes": peak() - before}
print(json.dumps(found | {"weights": model.weight_bytes, "parameters": model.info()["parameters"]}))
"""


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_full_size_takes_little_more_memory_than_its_weights(name, tmp_path):
    changes, parameters = MODELS[name]
    document = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    for key, value in changes.items():
        put(document, key, value)
    torch.save({key: torch.zeros(shape) for key, shape in released_like.shapes(document).items()}, tmp_path / WEIGHTS)
    with tarfile.open(tmp_path / "model.nemo", "w") as tar:
        small = {CONFIG: yaml.safe_dump(document).encode(), TOKENIZER: golden_members()[TOKENIZER]}
        for file, content in small.items():
            about = tarfile.TarInfo(file)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
        tar.add(tmp_path / WEIGHTS, WEIGHTS)

    command = [sys.executable, "-c", LOAD, tmp_path / "model.nemo"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert loaded.returncode == 0, loaded.stderr

    told = json.loads(loaded.stdout)
    share = told["bytes"] / told["weights"]
    print(f"{name}: {told['weights'] / 1e9:.2f} GB in {told['seconds']:.1f} s, a transcript included, peak {share:.2f}")  # noqa: T201  # docs
    assert told["parameters"] == pytest.approx(parameters, rel=0.01)
    assert share < 1.3
