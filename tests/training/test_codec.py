"""Codecs take something away from a clip, and move nothing in time."""

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import GOLDEN
from training.codec import CODECS, coded, through

RATE = 16_000
EACH = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{codec.encoding}-{codec.rate or RATE}")


def clip(name="awb-4s"):
    samples, rate = soundfile.read(GOLDEN / "clips" / f"{name}.wav", dtype="float32")
    assert rate == RATE
    return samples


def least(codec):
    return codec.compression and codec.compression[0]


def most(codec):
    return codec.compression and codec.compression[1]


@EACH
def test_sound_keeps_its_time(codec):
    before = clip()

    after = through(codec, most(codec), before, RATE)

    size = 2 * len(before)
    correlation = np.fft.irfft(np.fft.rfft(after, size) * np.conj(np.fft.rfft(before, size)), size)
    assert abs(int(np.argmax(np.roll(correlation, size // 2))) - size // 2) <= 2
    assert np.corrcoef(before, after)[0, 1] > 0.8


@EACH
def test_something_is_lost(codec):
    before = clip()

    lost = through(codec, most(codec), before, RATE) - before

    assert np.sqrt(np.mean(lost**2)) > 0.005 * np.sqrt(np.mean(before**2))


@EACH
def test_a_telephone_has_no_sound_above_its_band(codec):
    power = np.abs(np.fft.rfft(through(codec, least(codec), clip(), RATE))) ** 2
    above = power[int(len(power) * 4300 / 8000) :].sum() / power.sum()

    assert above < 1e-6 if codec.rate else above > 1e-4


@given(samples=st.integers(0, 5000), seed=st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_a_clip_keeps_its_length_and_the_same_seed_gives_the_same(samples, seed):
    before = np.random.default_rng(seed).uniform(-0.3, 0.3, samples).astype(np.float32)
    kept = before.copy()

    first = coded(before, RATE, np.random.default_rng(seed))
    second = coded(before, RATE, np.random.default_rng(seed))

    assert first.shape == before.shape
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    assert np.array_equal(first, second)
    assert np.array_equal(before, kept)


def test_seeds_choose_among_all_codecs():
    before = clip()

    outcomes = {coded(before, RATE, np.random.default_rng(seed)).tobytes() for seed in range(20)}

    assert len(outcomes) > len(CODECS)
