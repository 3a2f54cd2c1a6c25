"""Make the golden language identifiers of tests/data/golden/identifier-*: what NeMo computes for them.

    runs/nemo-venv/bin/python -m tests.nemo.make_identifiers [NAME ...]

NeMo has an environment of its own (`make nemo-check` installs it). Weights are random. Last layers are drawn until the
clips are found to be in several languages, each with a lead. What is recorded comes out of the model read back from its
archive, for each clip alone.
"""

import contextlib
import json
import logging
import sys
import tempfile

import nemo
import nemo.collections.asr as nemo_asr
import torch
from omegaconf import DictConfig

from tests.nemo.make_variants import BLOCK, FRONT_END, GOLDEN, MODULES, clips, lead, randomise

LABELS = ["ceb", "de", "en", "fr", "iw", "zh-CN"]
NEEDED = ("de", "en")  # the languages of the golden Canary
DISTINCT = 4
CLEAR = 0.3  # of logits
SQUEEZED = BLOCK | {"filters": 24, "separable": True, "se": True, "se_context_size": -1}
LOSS = {"_target_": "nemo.collections.common.losses.cross_entropy.CrossEntropyLoss", "weight": [1.0] * len(LABELS)}
# Bands of the features, and what differs in the decoder. The features of the first are stored for other models.
IDENTIFIERS = {
    "statistics": (80, {"pool_mode": "xvector", "emb_sizes": 16, "angular": False}),
    "attention": (24, {"pool_mode": "attention", "emb_sizes": [20, 12], "attention_channels": 8}),
    "mean": (24, {"pool_mode": "tap", "emb_sizes": [16]}),
}


def build(name):
    mels, decoder = IDENTIFIERS[name]
    encoder = {
        "_target_": f"{MODULES}.ConvASREncoder",
        "feat_in": mels,
        "activation": "relu",
        "conv_mask": True,
        "jasper": [
            SQUEEZED | {"kernel": [3], "residual": False},
            SQUEEZED | {"kernel": [7], "repeat": 2},
            SQUEEZED | {"kernel": [1], "filters": 32, "residual": False},
        ],
    }
    shared = {"_target_": f"{MODULES}.SpeakerDecoder", "feat_in": 32, "num_classes": len(LABELS)}
    config = {
        "sample_rate": 16000,
        "preprocessor": FRONT_END | {"features": mels, "pad_to": 16},
        "encoder": encoder,
        "decoder": shared | decoder,
        "loss": LOSS,
        "train_ds": {"manifest_filepath": None, "sample_rate": 16000, "labels": LABELS, "defer_setup": True},
    }
    torch.manual_seed(0)
    return nemo_asr.models.EncDecSpeakerLabelModel(cfg=DictConfig(config))


@torch.no_grad()
def logits(model, samples):
    signal, length = torch.from_numpy(samples)[None], torch.tensor([len(samples)])
    scores, _ = model.forward(input_signal=signal, input_signal_length=length)
    return scores[0]


@torch.no_grad()
def decide(model, spoken):
    """Draw last layers until one finds several languages, each with a lead."""
    layer = model.decoder.final
    for attempt in range(100_000):
        torch.manual_seed(attempt)
        layer.weight.normal_()
        layer.bias.zero_()
        scores = torch.stack([logits(model, samples) for samples in spoken])
        scale = 2 / (scores - scores.mean(0)).std()
        centered = scale * (scores - scores.mean(0))
        found = {LABELS[best] for best in centered.argmax(dim=1).tolist()}
        if lead(centered) > CLEAR and found.issuperset(NEEDED) and len(found) >= DISTINCT:
            layer.weight.mul_(scale)
            layer.bias.copy_(-scale * scores.mean(0))
            return
    raise RuntimeError("no last layer is clear")


def make(name):
    folder = GOLDEN / f"identifier-{name}"
    folder.mkdir(exist_ok=True)
    archive = folder / "model.nemo"
    spoken, model = dict(clips()), build(name).eval()
    randomise(model.encoder)
    randomise(model.decoder)
    decide(model, list(spoken.values()))
    model.save_to(str(archive))
    model = nemo_asr.models.EncDecSpeakerLabelModel.restore_from(str(archive), map_location="cpu").eval()
    entries = {}
    for clip, samples in spoken.items():
        scores = logits(model, samples)
        entries[clip] = {
            "label": LABELS[int(scores.argmax())],
            "logits": scores.tolist(),
            "probabilities": scores.softmax(0).tolist(),
        }
    facts = {"nemo": nemo.__version__, "torch": torch.__version__, "labels": LABELS, "clips": entries}
    text = json.dumps(facts, indent=1)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


def main():
    torch.set_num_threads(1)
    logging.getLogger("nemo_logger").setLevel(logging.ERROR)
    for name in sys.argv[1:] or IDENTIFIERS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # so that archives name no machine
            make(name)


if __name__ == "__main__":
    main()
