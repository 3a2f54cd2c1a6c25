"""The ladder of training batches: each rung leaves less padding, and those that fill memory stay within it."""

from argparse import Namespace

import numpy as np

from benchmarks.training_batches import ladder


def test_padding_falls_and_memory_is_filled_and_not_exceeded():
    random = np.random.default_rng(0)
    seconds = random.gamma(4, 1.5, size=3000).clip(1, 17)
    labels = (seconds * random.uniform(2, 5, size=3000)).astype(int) + 10
    clips = (seconds.tolist(), labels.tolist())
    args = Namespace(seconds=120, buckets=8, label_buckets=4)

    fixed, _, equal, searched, both = ladder(clips, clips, args, lambda seconds, labels: seconds + labels / 25)

    assert fixed.audio_padding > 2 * equal.audio_padding
    assert both.label_padding < 0.5 * searched.label_padding
    assert fixed.memory < searched.memory
    assert max(one.highest for one in (fixed, searched, both)) <= 1.0
    assert searched.steps < 0.6 * fixed.steps
    assert both.clips > fixed.clips
