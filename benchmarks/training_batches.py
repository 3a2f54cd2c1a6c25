"""Ways to form the batches of a training epoch, from one batch size to buckets of seconds and labels.

All but the first leave out clips of too many labels a second: the largest one batch size that fits the memory; buckets
of equal seconds; for each of these the largest batch that fits the memory (what a batch-size search finds); and buckets
by seconds and labels, filled in the same way. The memory is what the first way's batch would take if each of its clips
were the longest and had the most labels; batches are assumed to take it in proportion to padded seconds and labels.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from training.attention_vocabulary import TrainingVocabulary
from training.buckets import Buckets, buckets_of_equal_audio
from training.sampler import BucketSampler
from training.takes import Take

# Special tokens of a prompt, and the end.
_PROMPT = 10


def without_dense(takes: Sequence[Take], vocabulary: TrainingVocabulary, most: float) -> list[Take]:
    """Return the takes with at most ``most`` labels in a second."""
    return [take for take in takes if len(vocabulary.encode(take.clip.text or "")) <= most * take.seconds]


def ways(
    all_clips: tuple[list[float], list[int]],
    kept: tuple[list[float], list[int]],
    args: argparse.Namespace,
    cost: Callable[[float, float], float],
) -> list[tuple[str, bool, Buckets, float]]:
    """Return ways to make batches: a name, whether clips of too many labels a second are left out, buckets, budget."""
    one = buckets_of_equal_audio(all_clips[0], 1, args.seconds, all_clips[1])
    # What the first rung's batch would take if each of its clips were the longest and had the most labels.
    budget = cost(args.seconds, one.rows(0) * max(all_clips[1]))
    filtered = _filled(buckets_of_equal_audio(kept[0], 1, args.seconds, kept[1]), cost, budget)
    equal = buckets_of_equal_audio(kept[0], args.buckets, args.seconds, kept[1])
    both = buckets_of_equal_audio(kept[0], args.buckets, args.seconds, kept[1], args.label_buckets)
    return [
        ("one fixed batch", False, one, budget),
        ("+ a filter of labels per second", True, filtered, budget),
        ("+ buckets of equal seconds", True, equal, budget),
        ("+ a batch-size search", True, _filled(equal, cost, budget), budget),
        ("+ buckets of seconds and labels", True, _filled(both, cost, budget), budget),
    ]


def _filled(buckets: Buckets, cost: Callable[[float, float], float], budget: float) -> Buckets:
    """Return buckets whose batches fill the memory."""
    rows = tuple(max(1, int(budget / cost(bucket.seconds, bucket.labels))) for bucket in buckets.all)
    return replace(buckets, counts=rows)


def padded(clips: tuple[list[float], list[int]], buckets: Buckets) -> NDArray[np.float64]:
    """Return the clips, the seconds and the labels of each batch of an epoch, [batches, 3].

    Labels are padded to the most of their batch; audio to the length of its bucket, as in training, or without buckets
    to the longest of its batch.
    """
    seconds, labels = clips
    sampler = BucketSampler(seconds, [1.0] * len(seconds), buckets, 0, labels)
    batches = [batch for (batch,) in sampler.epoch(0)]
    takes = [[draw.take for draw in batch.draws] for batch in batches]
    lengths = [
        max(seconds[take] for take in some) if has_no_buckets(buckets) else batch.seconds
        for batch, some in zip(batches, takes, strict=True)
    ]
    most = [max(labels[take] for take in some) for some in takes]
    counts = np.array([len(some) for some in takes], float)
    return np.stack([counts, counts * lengths, counts * most], axis=1)


def has_no_buckets(buckets: Buckets) -> bool:
    """Return whether clips of all lengths are in one batch."""
    return len(buckets.all) == 1
