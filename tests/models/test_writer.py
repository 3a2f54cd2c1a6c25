"""Short utterances get silence on both sides, and nothing else changes."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.writer import silence_before, with_silence_around


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    extra=st.integers(0, 5),
    garbage=st.sampled_from([0.0, 5.0, float("nan")]),
)
@settings(max_examples=100, deadline=None)
def test_each_utterance_lies_in_the_middle_of_silence(lengths, extra, garbage):
    utterances = [np.arange(1, length + 1, dtype=np.float32) for length in lengths]
    waveforms = torch.full((len(lengths), max(lengths) + extra), garbage)
    for row, samples in zip(waveforms, utterances, strict=True):
        row[: len(samples)] = torch.from_numpy(samples)

    found, counts = with_silence_around(waveforms, torch.tensor(lengths), least=11)

    before = silence_before(torch.tensor(lengths), least=11).tolist()
    for row, count, samples, silence in zip(found, counts.tolist(), utterances, before, strict=True):
        missing = max(0, 11 - len(samples)) if len(samples) else 0
        assert silence == missing // 2
        assert row[:count].tolist() == [0.0] * silence + samples.tolist() + [0.0] * (missing - silence)
