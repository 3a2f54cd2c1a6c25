"""Quiet speech is brought to the level of speech, and loud speech stays as it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.segment.level import Level, audible

SECOND = 16_000


def noise(seconds: float, power: float) -> np.ndarray:
    samples = np.random.default_rng(3).normal(0, 1, round(seconds * SECOND))
    return (samples * np.sqrt(power)).astype(np.float32)


def power(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.square(samples).mean()))


@pytest.mark.parametrize("decibels", [-30, -50, -70])
def test_what_is_quiet_has_the_level_of_speech(decibels):
    assert power(Level().raised(noise(30, 10 ** (decibels / 10)))) == pytest.approx(-23, abs=1)


@pytest.mark.slow
def test_what_is_loud_stays_as_it_is():
    loud = noise(30, 0.05)

    assert Level().raised(loud) == pytest.approx(loud - loud.mean())


def test_a_pause_after_speech_is_not_brought_to_the_level_of_speech():
    level = Level()
    level.raised(noise(30, 10**-2.5))

    assert power(level.raised(noise(30, 10**-7))) < -50


def test_silence_stays_silence_and_what_is_constant_is_removed():
    assert not Level().raised(np.zeros(SECOND, np.float32)).any()
    assert np.abs(Level().raised(np.full(SECOND, 0.5, np.float32))).max() < 1e-6


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3000), st.floats(0, 2e9))
def test_any_block_stays_finite(samples, scale):
    raised = Level().raised(np.sin(np.arange(samples)).astype(np.float32) * np.float32(scale))

    assert len(raised) == samples
    assert np.isfinite(raised).all()


@pytest.mark.parametrize(("decibels", "raised"), [(-30, -30), (-39, -39), (-42, -23), (-50, -23), (-70, -23)])
def test_an_utterance_is_raised_where_features_would_hide_a_part_of_it(decibels, raised):
    assert power(audible(noise(3, 10 ** (decibels / 10)))) == pytest.approx(raised, abs=1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3000), st.floats(0, 1), st.floats(0, 2))
def test_an_utterance_is_raised_as_one_and_stays_in_range(samples, scale, click):
    utterance = np.sin(np.arange(samples)).astype(np.float32) * np.float32(scale)
    utterance[:1] = click

    raised = audible(utterance)

    loudest = np.abs(utterance).max(initial=1e-30)
    gain = np.abs(raised).max(initial=1e-30) / loudest
    assert np.abs(raised).max(initial=0) <= max(1, loudest) * (1 + 1e-6)
    assert gain >= 1
    assert raised == pytest.approx(utterance * gain, rel=1e-5)
