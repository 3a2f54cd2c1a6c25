"""Augmentation changes how a clip sounds, by as much as the recipe says, and moves nothing in time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.augment import Augmenter, at_level, with_noise
from training.recipe_augmentation import Augmentation, Level, Noise

RATE = 16_000
EVERYTHING = Augmentation(
    noise=Noise(share=0.7, snr_db=(0.0, 30.0)),
    level=Level(gain_db=(-20.0, 10.0)),
)


def speech(samples=RATE, seed=0):
    return (0.1 * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def decibels(signal, noise):
    return 10 * np.log10(np.mean(np.square(signal)) / np.mean(np.square(noise)))


@given(st.integers(1, 5000), st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_a_clip_keeps_its_length_and_its_range_and_the_same_seed_gives_the_same(samples, seed):
    clip = speech(samples)
    before = clip.copy()

    first = Augmenter(EVERYTHING).augmented(clip, np.random.default_rng(seed))
    second = Augmenter(EVERYTHING).augmented(clip, np.random.default_rng(seed))

    assert first.shape == clip.shape
    assert first.dtype == np.float32
    assert np.abs(first).max() <= 1
    assert np.array_equal(first, second)
    assert np.array_equal(clip, before)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_silence_stays_silent_and_finite(seed):
    silence = np.zeros(1000, dtype=np.float32)

    changed = Augmenter(EVERYTHING).augmented(silence, np.random.default_rng(seed))

    assert np.array_equal(changed, silence)


def test_nothing_asked_for_changes_nothing():
    assert np.array_equal(Augmenter(Augmentation()).augmented(speech(), np.random.default_rng(0)), speech())


@pytest.mark.parametrize("snr", [0.0, 12.0, 30.0])
def test_noise_has_the_loudness_asked_for(snr):
    clip = speech()

    noisy = with_noise(clip, Noise(share=1, snr_db=(snr, snr)), np.random.default_rng(1))

    assert decibels(clip, noisy - clip) == pytest.approx(snr, abs=0.1)


@pytest.mark.parametrize("gain", [-20.0, 6.0])
def test_gain_is_the_one_asked_for(gain):
    clip = speech()

    assert decibels(at_level(clip, Level(gain_db=(gain, gain)), np.random.default_rng(0)), clip) == pytest.approx(gain)
