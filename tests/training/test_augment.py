"""Augmentation changes how a clip sounds, by as much as the recipe says, and moves nothing in time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.augment import at_level, augmented, reverberated, with_noise
from training.recipe_augmentation import Augmentation, Level, Noise, Reverberation

RATE = 16_000
EVERYTHING = Augmentation(
    noise=Noise(share=0.7, snr_db=(0.0, 30.0)),
    reverberation=Reverberation(share=0.7, seconds=(0.1, 0.8)),
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

    first = augmented(clip, RATE, EVERYTHING, np.random.default_rng(seed))
    second = augmented(clip, RATE, EVERYTHING, np.random.default_rng(seed))

    assert first.shape == clip.shape
    assert first.dtype == np.float32
    assert np.abs(first).max() <= 1
    assert np.array_equal(first, second)
    assert np.array_equal(clip, before)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_silence_stays_silent_and_finite(seed):
    silence = np.zeros(1000, dtype=np.float32)

    changed = augmented(silence, RATE, EVERYTHING, np.random.default_rng(seed))

    assert np.array_equal(changed, silence)


def test_nothing_asked_for_changes_nothing():
    assert np.array_equal(augmented(speech(), RATE, Augmentation(), np.random.default_rng(0)), speech())


@pytest.mark.parametrize("snr", [0.0, 12.0, 30.0])
def test_noise_has_the_loudness_asked_for(snr):
    clip = speech()

    noisy = with_noise(clip, Noise(share=1, snr_db=(snr, snr)), np.random.default_rng(1))

    assert decibels(clip, noisy - clip) == pytest.approx(snr, abs=0.1)


@pytest.mark.parametrize("gain", [-20.0, 6.0])
def test_gain_is_the_one_asked_for(gain):
    clip = speech()

    assert decibels(at_level(clip, Level(gain_db=(gain, gain)), np.random.default_rng(0)), clip) == pytest.approx(gain)


def test_a_room_answers_after_the_sound_and_dies_away_in_its_time():
    click = np.zeros(RATE, dtype=np.float32)
    click[1000] = 1.0
    config = Reverberation(share=1, seconds=(0.4, 0.4), direct_db=(3.0, 3.0))

    heard = reverberated(click, RATE, config, np.random.default_rng(0))

    direct, room = heard[1000], heard[1001:]
    assert np.abs(heard[:1000]).max() < 1e-6
    assert np.abs(heard).argmax() == 1000
    assert 10 * np.log10(direct**2 / np.sum(room**2)) == pytest.approx(3.0, abs=0.1)
    early, late = np.mean(room[:800] ** 2), np.mean(room[3200:4000] ** 2)
    assert 10 * np.log10(early / late) == pytest.approx(60 * 0.2 / 0.4, abs=2)
    assert np.mean(heard**2) == pytest.approx(np.mean(click**2), rel=1e-3)
