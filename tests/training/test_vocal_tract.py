"""A stretched spectrum is that of a higher or a lower voice, at the same times."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features import LogMelFeatures
from training.student import FRONT_END
from training.vocal_tract import stretched

BURST = slice(8_000, 12_000)
HEARD = slice(54, 71)


def burst(hz):
    """Features of a tone that sounds for a quarter of a second within quiet noise, [1, mels, frames]."""
    random = np.random.default_rng(0)
    samples = 0.001 * random.standard_normal(20_000)
    samples[BURST] += 0.3 * np.sin(2 * np.pi * hz * np.arange(4_000) / FRONT_END.sample_rate)
    waveform = torch.from_numpy(samples.astype(np.float32))[None]
    return LogMelFeatures(FRONT_END)(waveform, torch.tensor([20_000]))[0]


def loudest_band(features):
    return features[0, :, HEARD].mean(dim=1).argmax().item()


@given(st.floats(150, 4_000), st.floats(0.85, 1.18))
@settings(max_examples=40, deadline=None)
def test_a_tone_moves_to_its_frequency_times_the_factor(hz, factor):
    moved = stretched(burst(hz), torch.tensor([factor]), FRONT_END)

    assert abs(loudest_band(moved) - loudest_band(burst(hz * factor))) <= 1


@given(st.floats(0.5, 2.0), st.integers(1, 4), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_nothing_moves_in_time_and_nothing_is_made_up(factor, rows, frames):
    random = torch.Generator().manual_seed(frames)
    features = torch.randn(rows, FRONT_END.mels, frames, generator=random)
    factors = torch.full((rows,), factor)
    whole = stretched(features, factors, FRONT_END)

    assert whole.shape == features.shape
    assert torch.equal(whole[:, :, -1:], stretched(features[:, :, -1:], factors, FRONT_END))
    assert (whole.amax(dim=1) <= features.amax(dim=1) + 1e-5).all()
    assert (whole.amin(dim=1) >= features.amin(dim=1) - 1e-5).all()


def test_a_factor_of_one_changes_nothing_and_every_clip_has_its_own():
    features = torch.randn(2, FRONT_END.mels, 30, generator=torch.Generator().manual_seed(1))

    both = stretched(features, torch.tensor([1.0, 1.1]), FRONT_END)

    assert both[0] == pytest.approx(features[0], abs=1e-5)
    assert not torch.allclose(both[1], features[1], atol=0.1)
    assert torch.equal(both[1], stretched(features[1:], torch.tensor([1.1]), FRONT_END)[0])
