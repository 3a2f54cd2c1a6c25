"""Each rung leaves less padding, within the memory, and is timed by as many batches as the others."""

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import training_ladder
from benchmarks.training_ladder import padded, ways


def test_a_bucket_that_does_not_fill_a_batch_counts_as_one():
    rung = object.__new__(training_ladder.MeasuredRung)
    rung.seconds = [1.0] * 45
    rung.sampler = SimpleNamespace(buckets=[(1.0, 40, 20), (2.0, 5, 10), (4.0, 0, 5)])  # edge, clips, rows
    rung.times = {0: [3.0, 5.0], 1: [1.0]}

    assert rung.clips_a_second() == pytest.approx(45 / (2 * 4.0 + 1 * 1.0))


def test_padding_falls_and_memory_is_filled_and_not_exceeded():
    random = np.random.default_rng(0)
    seconds = random.gamma(4, 1.5, size=3000).clip(1, 17)
    labels = (seconds * random.uniform(2, 5, size=3000)).astype(int) + 10
    clips = (seconds.tolist(), labels.tolist())

    def cost(seconds, labels):
        return seconds + labels / 25

    rungs = ways(clips, clips, Namespace(seconds=120, buckets=8, label_buckets=4), cost)
    fixed, _, equal, searched, both = (padded(clips, buckets) for _, _, buckets, _ in rungs)
    budget = rungs[0][3]

    def padding(batches, column):
        return 1 - sum(clips[column - 1]) / batches[:, column].sum()

    def taken(batches):
        return cost(batches[:, 1], batches[:, 2]) / budget

    assert padding(fixed, 1) > 2 * padding(equal, 1)
    assert padding(both, 2) < 0.5 * padding(searched, 2)
    assert taken(fixed).mean() < taken(searched).mean()
    assert max(taken(one).max() for one in (fixed, searched, both)) <= 1.0
    assert len(searched) < 0.6 * len(fixed)
    assert both[:, 0].mean() > fixed[:, 0].mean()
