"""Checkpoints laid out like released ones load, and every decoder of theirs runs."""

import io
import json

import numpy as np
import pytest
import torch

from models import load_model
from models.checkpoint import read_checkpoint
from models.features import LogMelFeatures
from tests.models.checkpoint import released_like
from tests.models.checkpoint.nemo_files import WEIGHTS, archive

EXPECTED = {
    "parakeet_tdt_like": {"family": "fastconformer", "mels": 128, "decoders": ["tdt"], "max_symbols": 10},
    "parakeet_ctc_like": {"family": "fastconformer", "mels": 80, "decoders": ["ctc"], "max_symbols": None},
    "hybrid_110m_like": {"durations": [0, 1, 2, 3, 4], "decoders": ["tdt", "ctc"], "subsampling_factor": 8},
    "conformer_transducer_old": {"family": "conformer", "decoders": ["rnnt"], "durations": None, "max_symbols": 30},
    "conformer_ctc_characters": {"vocabulary": {"kind": "characters", "size": 28}, "seconds_per_frame": 0.04},
}
NOISE = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("gzipped", [False, True], ids=["plain", "gzipped"])
def test_it_loads_and_transcribes(name, gzipped, tmp_path):
    path = archive(tmp_path / "model.nemo", released_like.members(name), gzipped=gzipped)

    model = load_model(path)

    info = json.loads(json.dumps(model.info()))
    assert {key: info[key] for key in EXPECTED[name]} == EXPECTED[name]
    for decoder in model.decoders:
        (hypothesis,) = model.transcribe([NOISE], decoder=decoder)
        assert len(hypothesis.tokens) == len(hypothesis.frames) == len(hypothesis.token_confidence)


def test_the_window_and_the_mel_bank_of_the_file_are_used(tmp_path):
    members = released_like.members("parakeet_ctc_like")

    path = archive(tmp_path / "model.nemo", members)

    tensors = torch.load(io.BytesIO(members[WEIGHTS]), weights_only=True)
    window, bank = tensors["preprocessor.featurizer.window"], tensors["preprocessor.featurizer.fb"][0]
    front_end = LogMelFeatures(read_checkpoint(path).config.features, window, bank)
    wanted, _ = front_end(torch.from_numpy(NOISE)[None], torch.tensor([len(NOISE)]))
    assert load_model(path).features([NOISE])[0].equal(wanted)
