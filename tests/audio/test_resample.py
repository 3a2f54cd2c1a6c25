"""Resampling keeps speech, drops what the new rate cannot carry, and does not depend on the cuts between blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.resample import resampled
from tests.audio.sound_files import tone


def level_db(samples):
    """Relative to a sine of full scale, away from the edges."""
    middle = samples[2000:-2000]
    return 10 * np.log10(2 * np.mean(middle.astype(np.float64) ** 2) + 1e-30)


def resample(samples, source_rate, rate):
    return np.concatenate(list(resampled([samples], source_rate, rate)))


@pytest.mark.parametrize(("frequency", "passes"), [(100, True), (7000, True), (8100, False), (20000, False)])
@pytest.mark.parametrize("source_rate", [44100, 48000])
def test_the_band_of_the_new_rate_passes_and_what_would_alias_is_gone(source_rate, frequency, passes):
    level = level_db(resample(tone(frequency, 2, source_rate, level=1), source_rate, 16000))

    assert abs(level) < 0.1 if passes else level < -100


def test_equal_rates_pass_untouched():
    blocks = [tone(440, 0.1, 16000), tone(330, 0.2, 16000)]

    through = list(resampled(blocks, 16000, 16000))

    assert all(out is block for out, block in zip(through, blocks, strict=True))


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([8000, 11025, 22050, 44100, 48000]),
    st.lists(st.integers(1, 3000), min_size=1, max_size=12),
)
def test_cuts_between_blocks_change_nothing_and_the_length_is_right(source_rate, sizes):
    samples = np.random.default_rng(0).uniform(-1, 1, sum(sizes)).astype(np.float32)
    blocks = np.split(samples, np.cumsum(sizes)[:-1])

    joined = np.concatenate(list(resampled(blocks, source_rate, 16000)))

    assert len(joined) == pytest.approx(len(samples) * 16000 / source_rate, abs=1)
    np.testing.assert_allclose(joined, resample(samples, source_rate, 16000), atol=1e-6)
