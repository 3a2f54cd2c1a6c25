"""Buckets hold every clip, about the same audio each, and little padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.buckets import buckets_of_equal_audio
from training.sampler import BucketSampler

SECONDS = st.lists(st.floats(0.1, 30), min_size=1, max_size=60)


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

    of_clip = buckets.of_all(seconds, np.zeros(5000))
    audio = np.array([seconds[of_clip == bucket].sum() for bucket in range(12)])
    padded = np.array(buckets.bounds)[of_clip].sum()
    assert audio == pytest.approx(np.full(12, seconds.sum() / 12), rel=0.02)
    assert 1 - seconds.sum() / padded < 0.12


def test_clips_beside_many_of_one_length_are_divided_evenly_too():
    seconds = [10.0] * 600 + np.linspace(10.5, 20, 200).tolist()  # 6,000 and 3,050 seconds

    buckets = buckets_of_equal_audio(seconds, 6, 160)

    audio = np.bincount(buckets.of_all(seconds, np.zeros(800)), seconds)
    assert audio[0] == 6000
    assert audio[1:] == pytest.approx([610] * 5, rel=0.05)


CLIPS = st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 300)), min_size=1, max_size=60)


@given(CLIPS, st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_in_two_dimensions_every_clip_has_the_least_bucket_that_holds_it(clips, count, label_count):
    seconds, labels = map(list, zip(*clips, strict=True))

    buckets = buckets_of_equal_audio(seconds, count, 40, labels, label_count)

    assert list(buckets.all) == sorted(set(buckets.all))
    assert len(buckets.bounds) <= count
    assert buckets.bounds[-1] == max(seconds)
    for clip, found in zip(clips, buckets.of_all(seconds, labels), strict=True):
        shape = buckets.all[found]
        assert shape.seconds == min(bound for bound in buckets.bounds if bound >= clip[0])
        assert clip[1] <= shape.labels
        same = [other for other in buckets.all if other.seconds == shape.seconds]
        assert len(same) <= label_count
        assert all(other.labels < clip[1] for other in same if other < shape)


def test_in_two_dimensions_less_than_half_of_the_label_padding_is_left():
    random = np.random.default_rng(0)
    seconds = random.gamma(4, 1.5, size=5000).clip(1, 17)
    labels = (seconds * random.uniform(1, 6, size=5000) + 10).astype(int)

    def label_padding(label_buckets):
        buckets = buckets_of_equal_audio(seconds.tolist(), 8, 160, labels.tolist(), label_buckets)
        sampling = BucketSampler(seconds.tolist(), [1.0] * 5000, buckets, 0, labels.tolist())
        counts = [[labels[draw.take] for draw in batch.draws] for (batch,) in sampling.epoch(0)]
        return 1 - sum(map(sum, counts)) / sum(max(one) * len(one) for one in counts)

    assert label_padding(4) < 0.5 * label_padding(1)
