"""The golden models, what NeMo computes for them (tests/data/README.md), and how closely we must agree."""

import json
import wave
from functools import cache

import numpy as np
import pytest
from safetensors.torch import load_file

from models import load_model
from tests.conftest import GOLDEN

# What scores every frame; tests/models/test_canary.py has the attention decoder.
DECODERS = (
    ("fastconformer-ctc-bpe", "ctc"),
    ("fastconformer-rnnt-bpe", "rnnt"),
    ("fastconformer-tdt-bpe", "tdt"),
    ("hybrid-rnnt-ctc-bpe", "rnnt"),
    ("hybrid-rnnt-ctc-bpe", "ctc"),
    ("hybrid-tdt-ctc-bpe", "tdt"),
    ("hybrid-tdt-ctc-bpe", "ctc"),
    ("jasper-small", "ctc"),
    ("quartznet-small", "ctc"),
    ("variant-citrinet", "ctc"),
    ("variant-global-token", "ctc"),
    ("variant-layer-norm", "ctc"),
    ("variant-local-attention", "ctc"),
)
MODELS = (*dict.fromkeys(name for name, _ in DECODERS), "canary-small")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CLIPS = tuple(sorted(path.stem for path in (GOLDEN / "clips").glob("*.wav")))

FEATURES_LARGEST = 1e-3
FEATURES_MEAN = 5e-5
ENCODER_FROM_FEATURES = 2e-5  # of the largest value, as the next two
ENCODER_FROM_AUDIO = 1e-4
ENCODER_FROM_QUIET_AUDIO = 5e-4
LOG_PROBABILITIES_FROM_FEATURES = 2e-4
LOG_PROBABILITIES_FROM_AUDIO = 5e-3


@cache
def model(name, device="cpu"):
    """A golden model, or the bundled one without its language model."""
    path = name if name == "bundled" else GOLDEN / name / "model.nemo"
    return load_model(path, device, language_model="none")


@cache
def clip(name):
    # Not soundfile: a GPU machine may have none, and the clips are plain 16-bit samples.
    with wave.open(str(GOLDEN / "clips" / f"{name}.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    samples.flags.writeable = False
    return samples


def clips():
    return [clip(name) for name in CLIPS]


@cache
def facts(name):
    return json.loads((GOLDEN / name / "expected.json").read_text(encoding="utf-8"))


@cache
def tensors(name):
    return load_file(GOLDEN / name / "expected.safetensors")


def clips_with_features(name):
    """Those whose features are recorded as the model sees them: Canary's has silence around the shortest."""
    return tuple(clip_name for clip_name in CLIPS if (name, clip_name) != ("canary-small", "espeak-300ms"))


def recorded_features(name, clip_name):
    """Features [mels, frames] without the columns past the clip's length, which are zero."""
    features = tensors(facts(name)["features_from"])[f"alone/{clip_name}/features"]
    return features[:, : facts(name)["clips"][clip_name]["alone"]["feature_length"]]


def recorded_encoder(name, clip_name):
    return tensors(name)[f"alone/{clip_name}/encoder"]


def transcript(name, clip_name, decoder):
    return facts(name)["clips"][clip_name]["alone"]["ctc" if decoder == "ctc" else "transducer"]


def encoder_bound(recorded, clip_name):
    """The largest difference allowed between frames computed from audio and the recorded ones."""
    share = ENCODER_FROM_QUIET_AUDIO if clip_name == "near-silence-1s" else ENCODER_FROM_AUDIO
    return share * largest(recorded)


def largest(recorded):
    """What shares of the largest value of recorded frames are shares of."""
    return max(1.0, float(recorded.abs().max()))
