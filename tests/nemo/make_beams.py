"""Make tests/data/golden/canary-small/beams.json: what NeMo's beam search writes, clip by clip.

    runs/nemo-venv/bin/python -m tests.nemo.make_beams

The golden model is so sure of every token that a beam changes nothing. So the output layer, which is the embedding as
well, is made smaller. Clips are given alone: in a batch, NeMo 3.0.0 mixes up the pasts of different utterances.
"""

import json
import logging
import wave
from pathlib import Path

import nemo
import numpy as np
import torch
from nemo.collections.asr.models import ASRModel
from omegaconf import open_dict

FOLDER = Path(__file__).parents[1] / "data" / "golden" / "canary-small"
SHORTEST = 16_000  # NeMo gives Canary a second or more by another way than forward()
SCALE = 0.3
BEAMS = (2, 4)


def clips():
    for path in sorted((FOLDER.parent / "clips").glob("*.wav")):
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        if len(samples) >= SHORTEST:
            yield path.stem, torch.from_numpy(samples)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    logging.getLogger("nemo_logger").setLevel(logging.ERROR)
    model = ASRModel.restore_from(str(FOLDER / "model.nemo"), map_location="cpu").eval()
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    model.log_softmax.mlp.layer0.weight.mul_(SCALE)
    model.log_softmax.mlp.layer0.bias.mul_(SCALE)
    prompts = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))["settings"]["prompts"]
    found = {}
    for beam in BEAMS:
        decoding = model.cfg.decoding.copy()
        with open_dict(decoding):
            decoding.strategy = "beam"
            decoding.beam.beam_size = beam
        model.change_decoding_strategy(decoding)
        for name, samples in clips():
            states, mask = model(input_signal=samples[None], input_signal_length=torch.tensor([len(samples)]))[2:]
            for prompt, settings in prompts.items():
                ids = torch.tensor([settings["ids"]])
                (written,) = model.decoding.decode_predictions_tensor(states, mask, ids, return_hypotheses=True)
                found.setdefault(str(beam), {}).setdefault(prompt, {})[name] = written.y_sequence.tolist()
    about = {"nemo": nemo.__version__, "torch": torch.__version__, "scale": SCALE, "beams": found}
    (FOLDER / "beams.json").write_text(json.dumps(about, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
