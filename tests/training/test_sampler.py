"""Every clip once an epoch, in batches of similar length, the same whenever one looks."""

from bisect import bisect_left
from collections import Counter
from itertools import islice
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.buckets import buckets_of_equal_audio
from training.errors import RecipeError
from training.ranks import Ranks
from training.sampler import BucketSampler, Position

SECONDS = st.lists(st.floats(0.1, 30), min_size=1, max_size=60)


def sampler(seconds, weights=None, seed=0, parts=1):
    buckets = buckets_of_equal_audio(seconds, 4, 40)
    return BucketSampler(seconds, weights or [1.0] * len(seconds), buckets, seed, parts=parts)


def batches_of(sampling, epoch):
    """The batches of all parts of an epoch."""
    return [batch for step in sampling.epoch(epoch) for batch in step]


@given(SECONDS, st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_an_epoch_holds_every_clip_once(seconds, seed, epoch):
    batches = batches_of(sampler(seconds, seed=seed), epoch)

    assert sorted(draw.take for batch in batches for draw in batch.draws) == list(range(len(seconds)))


@given(SECONDS, st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_a_batch_is_padded_to_its_bucket_and_only_one_of_a_bucket_is_not_full(seconds, epoch):
    partial, bounds = Counter(), buckets_of_equal_audio(seconds, 4, 40).bounds
    for batch in batches_of(sampler(seconds), epoch):
        lengths = [seconds[draw.take] for draw in batch.draws]
        bound = bounds[bisect_left(bounds, max(lengths))]
        assert batch.seconds == (bound if len(bounds) > 1 else max(lengths))
        assert len(lengths) == 1 or len(lengths) * bound <= 40
        partial[bound] += (len(lengths) + 1) * bound <= 40

    assert all(count <= 1 for count in partial.values())


@given(st.lists(st.floats(0, 3), min_size=1, max_size=40), st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_a_weight_is_rounded_up_or_down_and_draws_of_one_clip_differ(weights, epoch):
    batches = batches_of(sampler([5.0] * len(weights), weights), epoch)

    draws = [draw for batch in batches for draw in batch.draws]
    counts = Counter(draw.take for draw in draws)
    assert len(set(draws)) == len(draws)
    for take, weight in enumerate(weights):
        assert floor(weight) <= counts[take] <= ceil(weight)


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

    orders = {tuple(batches_of(sampler(seconds, seed=seed), epoch)) for seed in range(3) for epoch in range(3)}
    batches = {tuple(batch.draws for batch in order) for order in orders}

    assert len(batches) == 9


CLIPS = st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 200)), min_size=1, max_size=60)


@given(CLIPS, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]), st.integers(0, 5), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_ranks_share_an_epoch_step_by_step_in_one_bucket(clips, ranks, own, seed, epoch):
    seconds, labels = map(list, zip(*clips, strict=True))
    buckets = buckets_of_equal_audio(seconds, 4, 40, labels, 3)
    parts = ranks * own
    plan = ([1.0] * len(clips), buckets, seed, labels, parts)
    samplers = [BucketSampler(seconds, *plan) for _ in range(ranks)]
    steps, bucket_of = len(samplers[0].epoch(epoch)), buckets.of_all(seconds, labels).tolist()

    shares = [Ranks(rank, ranks).share(parts) for rank in range(ranks)]
    taken = [
        list(islice(one.batches(Position(epoch), share), steps * own))
        for one, share in zip(samplers, shares, strict=True)
    ]

    for step in range(steps):
        together = [batch for mine in taken for batch in mine[step * own : (step + 1) * own]]
        assert {batch.position for batch in together} == {Position(epoch, step)}
        assert len({batch.seconds for batch in together}) == 1 or len(buckets.bounds) == 1
        inside = {bucket_of[draw.take] for batch in together for draw in batch.draws}
        assert len(inside) == 1
        sizes = [len(batch.draws) for batch in together]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= buckets.rows(inside.pop())
    draws = Counter(draw.take for mine in taken for batch in mine for draw in batch.draws)
    assert draws == Counter(range(len(clips)))


def test_parts_that_ranks_cannot_share_are_refused():
    with pytest.raises(RecipeError, match=r"batches\.parts is 3; it must be a multiple of the 2 processes"):
        Ranks(0, 2).share(3)
