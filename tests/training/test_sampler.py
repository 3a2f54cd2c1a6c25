"""Every clip once an epoch, in batches of similar length, the same whenever one looks."""

from collections import Counter
from itertools import islice
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.buckets import buckets_of_equal_audio
from training.sampler import BucketSampler, Position

SECONDS = st.lists(st.floats(0.1, 30), min_size=1, max_size=60)


def sampler(seconds, weights=None, seed=0):
    buckets = buckets_of_equal_audio(seconds, 4, 40)
    return BucketSampler(seconds, weights or [1.0] * len(seconds), buckets, seed)


@given(SECONDS, st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_an_epoch_holds_every_clip_once(seconds, seed, epoch):
    batches = sampler(seconds, seed=seed).epoch(epoch)

    assert sorted(draw.take for batch in batches for draw in batch.draws) == list(range(len(seconds)))


@given(SECONDS, st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_a_batch_is_padded_to_its_bucket_and_only_one_of_a_bucket_is_not_full(seconds, epoch):
    partial = Counter()
    for batch in sampler(seconds).epoch(epoch):
        lengths = [seconds[draw.take] for draw in batch.draws]
        assert max(lengths) <= batch.seconds
        assert len(lengths) == 1 or len(lengths) * batch.seconds <= 40
        partial[batch.seconds] += (len(lengths) + 1) * batch.seconds <= 40

    assert all(count <= 1 for count in partial.values())


@given(st.lists(st.floats(0, 3), min_size=1, max_size=40), st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_a_weight_is_rounded_up_or_down_and_draws_of_one_clip_differ(weights, epoch):
    batches = sampler([5.0] * len(weights), weights).epoch(epoch)

    draws = [draw for batch in batches for draw in batch.draws]
    counts = Counter(draw.take for draw in draws)
    assert len(set(draws)) == len(draws)
    for take, weight in enumerate(weights):
        assert floor(weight) <= counts[take] <= ceil(weight)


def test_a_weight_is_what_a_clip_gets_on_average():
    sampling = sampler([5.0, 5.0], [0.3, 1.7])

    drawn = Counter(draw.take for epoch in range(1000) for batch in sampling.epoch(epoch) for draw in batch.draws)

    assert drawn[0] / 1000 == pytest.approx(0.3, abs=0.05)
    assert drawn[1] / 1000 == pytest.approx(1.7, abs=0.05)


@given(SECONDS, st.integers(0, 20), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_going_on_from_any_batch_gives_the_same_batches(seconds, done, seed):
    whole = list(islice(sampler(seconds, seed=seed).batches(Position()), done + 10))
    at = whole[done - 1].position if done else None
    start = Position(at.epoch, at.batch + 1) if at else Position()

    resumed = list(islice(sampler(seconds, seed=seed).batches(start), 10))

    assert resumed == whole[done:]


def test_epochs_and_seeds_differ():
    seconds = [float(length) for length in range(1, 40)]

    orders = {tuple(sampler(seconds, seed=seed).epoch(epoch)) for seed in range(3) for epoch in range(3)}
    batches = {tuple(batch.draws for batch in order) for order in orders}

    assert len(batches) == 9
