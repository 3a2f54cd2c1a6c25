"""Random models emit about as many labels as trained ones, so that their search costs about as much."""

import pytest
import torch

from benchmarks.random_model import random_checkpoint
from models.model import Model

SECONDS = 10


@pytest.mark.parametrize("transducer", ["rnnt", "tdt"])
def test_every_decoder_emits_some_labels_a_second_of_noise(transducer):
    model = Model(random_checkpoint("toy", transducer), torch.device("cpu"), torch.float32)
    noise = 0.1 * torch.randn(4, SECONDS * model.sample_rate, generator=torch.Generator().manual_seed(7))

    for decoder in (transducer, "ctc"):
        hypotheses = model.recognize_batch(noise, torch.full((4,), noise.size(1)), decoder=decoder).transcripts()
        labels = sum(len(hypothesis.tokens) for hypothesis in hypotheses)
        assert 2 < labels / (4 * SECONDS) < 8, decoder
