"""Sampling batches: a function of the seed and the epoch, so that a run resumes from two numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from training.buckets import Bucket, Buckets


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in a run: the epoch, and the number of the step in it."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """A take in an epoch.

    Attributes:
        take: its index.
        copy: the number of this draw of the take in this epoch, from 0.
    """

    take: int
    copy: int


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch to be loaded: one of the parts of a step.

    Attributes:
        position: the step.
        draws: its draws; empty if a step has fewer clips than parts.
        seconds: length that its clips are padded to.
        part: number of the part in the step.
    """

    position: Position
    draws: tuple[Draw, ...]
    seconds: float
    part: int = 0


class BucketSampler:
    """Draws batches of clips of similar length, epoch after epoch.

    In an epoch a clip of weight w is drawn floor(w) or ceil(w) times, w on average. All parts of a step are of one
    bucket, so that processes take equally long. Parts are full, except in the last step of each bucket, whose parts
    share the rest evenly. The order of steps is random.
    """

    def __init__(
        self,
        seconds: Sequence[float],
        weights: Sequence[float],
        buckets: Buckets,
        seed: int,
        labels: Sequence[int] | None = None,
        parts: int = 1,
    ) -> None:
        """Prepare to sample.

        Args:
            seconds: length of each clip.
            weights: how often to draw each clip in an epoch, on average.
            buckets: the buckets; the longest clip must fit.
            seed: seed of all choices.
            labels: number of labels of each clip, or None if they do not matter.
            parts: parts of a step.
        """
        self._weights = np.asarray(weights, dtype=np.float64)
        labels = [0] * len(seconds) if labels is None else labels
        self._bucket = np.asarray([buckets.bucket(*clip) for clip in zip(seconds, labels, strict=True)])
        self._parts = parts
        self._buckets = buckets
        self._seed = seed

    @property
    def buckets(self) -> list[tuple[Bucket, int, int]]:
        """The buckets, each with its number of clips, and the clips of a full batch."""
        clips = np.bincount(self._bucket, minlength=len(self._buckets.all)).tolist()
        return [(bucket, clips[number], self._buckets.rows(number)) for number, bucket in enumerate(self._buckets.all)]

    def epoch(self, number: int) -> list[tuple[PlannedBatch, ...]]:
        """Return the steps of an epoch, in order: all parts of each."""
        random = np.random.default_rng([self._seed, number])
        draws = self._draws(random)
        inside: list[list[Draw]] = [[] for _ in self._buckets.all]
        for draw in draws:
            inside[self._bucket[draw.take]].append(draw)
        steps: list[tuple[list[Draw], float]] = []
        for bucket, (shape, held) in enumerate(zip(self._buckets.all, inside, strict=True)):
            size = self._buckets.rows(bucket) * self._parts
            steps += [(held[start : start + size], shape.seconds) for start in range(0, len(held), size)]
        order = random.permutation(len(steps))
        return [self._shared_out(Position(number, place), *steps[index]) for place, index in enumerate(order)]

    def batches(self, start: Position, own: range | None = None) -> Iterator[PlannedBatch]:
        """Yield parts without end, from the step at ``start``; a position after the end of an epoch begins the next.

        Args:
            start: the first step.
            own: the parts of each step to yield; None: all.
        """
        own = range(self._parts) if own is None else own
        epoch, steps = start.epoch, self.epoch(start.epoch)[start.batch :]
        while True:
            for step in steps:
                yield from (step[part] for part in own)
            epoch += 1
            steps = self.epoch(epoch)

    def _shared_out(self, position: Position, draws: list[Draw], seconds: float) -> tuple[PlannedBatch, ...]:
        edges = [len(draws) * part // self._parts for part in range(self._parts + 1)]
        return tuple(
            PlannedBatch(position, tuple(draws[edges[part] : edges[part + 1]]), seconds, part)
            for part in range(self._parts)
        )

    def _draws(self, random: np.random.Generator) -> list[Draw]:
        """Return the draws of an epoch in random order."""
        whole = np.floor(self._weights)
        counts = (whole + (random.random(len(self._weights)) < self._weights - whole)).astype(np.int64)
        draws = [Draw(take, copy) for take, count in enumerate(counts.tolist()) for copy in range(count)]
        return [draws[index] for index in random.permutation(len(draws))]
