"""Batches of a training epoch, by ways to form them: from one batch size to buckets of seconds and labels.

    python -m benchmarks training_batches MANIFEST --vocabulary FILE [--seconds 600]

Rungs, of which all but the first leave out clips of too many labels a second: one batch size, and clips in random
order; the largest one batch size that fits the memory; buckets of equal seconds; for each of these the largest batch
that fits the memory (what a batch-size search finds); and buckets by seconds and labels, filled in the same way. No
model runs. For each rung: clips in a batch, steps of an epoch, shares of padding in audio and in labels, and the share
of the memory that a batch takes, mean and most. The memory is what the first rung's batch would take if each of its
clips were the longest and had the most labels; batches are assumed to take it in proportion to padded seconds plus
padded labels over `--labels-per-second`.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.buckets import Buckets, buckets_of_equal_audio
from training.density import DensityFilter
from training.manifest import read_manifest
from training.sampler import BucketSampler
from training.takes import Take
from training.vocabulary import TrainingVocabulary
from training.vocabulary_file import read_vocabulary

# Special tokens of a prompt, and the end.
_PROMPT = 10


@dataclass(frozen=True)
class Rung:
    """A way to form batches, and its figures."""

    name: str
    clips: float
    steps: int
    audio_padding: float
    label_padding: float
    memory: float
    highest: float


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--vocabulary", type=Path, required=True, help="SentencePiece model, or .nemo checkpoint")
    parser.add_argument("--seconds", type=float, default=600, help="audio and padding in a batch")
    parser.add_argument("--buckets", type=int, default=10)
    parser.add_argument("--label-buckets", type=int, default=4)
    parser.add_argument("--max-labels-per-second", type=float, default=10)
    parser.add_argument("--labels-per-second", type=float, default=25, help="labels that cost as much as a second")
    args = parser.parse_args()

    vocabulary = read_vocabulary(args.vocabulary)
    takes = [Take(clip) for clip in read_manifest(args.manifest) if clip.text is not None]
    kept, dropped = without_dense(takes, vocabulary, args.max_labels_per_second)
    if dropped:
        print(dropped)

    def count(some: Sequence[Take]) -> tuple[list[float], list[int]]:
        return [take.seconds for take in some], [
            len(vocabulary.encode(take.clip.text or "")) + _PROMPT for take in some
        ]

    def cost(seconds: float, labels: float) -> float:
        return seconds + labels / float(args.labels_per_second)

    rungs = ladder(count(takes), count(kept), args, cost)
    print(f"{'':40} clips  steps  audio padding  label padding  memory  highest")
    for rung in rungs:
        print(
            f"{rung.name:40} {rung.clips:5.1f} {rung.steps:6} {rung.audio_padding:13.1%} "
            f"{rung.label_padding:14.1%} {rung.memory:7.0%} {rung.highest:8.0%}"
        )
    print(json.dumps({"benchmark": "training_batches", "rungs": [vars(rung) for rung in rungs]}))


def without_dense(takes: Sequence[Take], vocabulary: TrainingVocabulary, most: float) -> tuple[list[Take], str | None]:
    """Return the takes with at most ``most`` labels in a second, and a line about the others, if any."""
    density = DensityFilter(most)
    kept = [take for take in takes if density.keeps(take, len(vocabulary.encode(take.clip.text or "")))]
    return kept, density.line()


def ladder(
    all_clips: tuple[list[float], list[int]],
    kept: tuple[list[float], list[int]],
    args: argparse.Namespace,
    cost: Callable[[float, float], float],
) -> list[Rung]:
    """Return the rungs, lowest first."""
    return [
        _rung(name, kept if is_filtered else all_clips, buckets, cost, budget)
        for name, is_filtered, buckets, budget in ways(all_clips, kept, args, cost)
    ]


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


def _rung(
    name: str,
    clips: tuple[list[float], list[int]],
    buckets: Buckets,
    cost: Callable[[float, float], float],
    budget: float,
) -> Rung:
    batches = padded(clips, buckets)
    count, seconds, labels = batches.sum(axis=0).tolist()
    taken = [cost(*sizes) for sizes in batches[:, 1:].tolist()]
    return Rung(
        name,
        clips=count / len(batches),
        steps=len(batches),
        audio_padding=1 - sum(clips[0]) / seconds,
        label_padding=1 - sum(clips[1]) / labels,
        memory=float(np.mean(taken)) / budget,
        highest=max(taken) / budget,
    )


if __name__ == "__main__":
    main()
