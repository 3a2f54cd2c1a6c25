"""Buckets hold every clip, about the same audio each, and little padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.buckets import buckets_of_equal_audio

SECONDS = st.lists(st.floats(0.1, 30), min_size=1, max_size=60)


@given(SECONDS, st.integers(1, 12), st.floats(1, 100))
@settings(max_examples=100, deadline=None)
def test_every_clip_fits_into_its_bucket_and_not_into_the_one_before(seconds, count, batch_seconds):
    buckets = buckets_of_equal_audio(seconds, count, batch_seconds)

    assert len(buckets.bounds) <= count
    assert list(buckets.bounds) == sorted(set(buckets.bounds))
    assert buckets.bounds[-1] == max(seconds)
    for length in seconds:
        bucket = buckets.bucket(length)
        assert length <= buckets.bounds[bucket]
        assert bucket == 0 or length > buckets.bounds[bucket - 1]


@given(SECONDS, st.integers(1, 12), st.floats(1, 100))
@settings(max_examples=100, deadline=None)
def test_a_full_batch_keeps_within_its_seconds(seconds, count, batch_seconds):
    buckets = buckets_of_equal_audio(seconds, count, batch_seconds)

    for bucket, bound in enumerate(buckets.bounds):
        rows = buckets.rows(bucket)
        assert rows == 1 or rows * bound <= batch_seconds
        assert (rows + 1) * bound > batch_seconds


def test_buckets_divide_the_audio_evenly_and_leave_little_padding():
    seconds = np.random.default_rng(0).gamma(4, 1.5, size=5000).clip(1, 17)

    buckets = buckets_of_equal_audio(seconds.tolist(), 12, 160)

    of_clip = np.array([buckets.bucket(length) for length in seconds])
    audio = np.array([seconds[of_clip == bucket].sum() for bucket in range(12)])
    padded = np.array(buckets.bounds)[of_clip].sum()
    assert audio == pytest.approx(np.full(12, seconds.sum() / 12), rel=0.02)
    assert 1 - seconds.sum() / padded < 0.12
