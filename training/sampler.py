"""Sampling batches: a function of the seed and the epoch, so that a run resumes from a ``Position``.

Sampler and epoch hold a few arrays, some 20 bytes for each clip; draws and batches are made when they are asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.buckets import Bucket, Buckets


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a run: the epoch, and the number of the step in it."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """The index of a take in an epoch, and the number of this draw of it in this epoch, from 0."""

    take: int
    copy: int


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch to be loaded, one of the parts of a step.

    Its draws are padded to ``seconds``; there are none if a step has fewer clips than parts.
    """

    position: Position
    draws: tuple[Draw, ...]
    seconds: float
    part: int = 0


@dataclass(frozen=True, slots=True)
class Epoch:
    """The steps of an epoch, in order: all parts of each.

    Attributes:
        number: its number.
        takes: the takes that it draws, part after part, before the steps are put in order.
        copies: the number of each draw among those of its take.
        part_starts: the index in ``takes`` of each part's first draw, and at last the number of draws.
        part_seconds: the length that the clips of each part are padded to.
        order: the steps in order.
    """

    number: int
    takes: NDArray[np.int32]
    copies: NDArray[np.int32]
    part_starts: NDArray[np.int64]
    part_seconds: NDArray[np.float64]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[tuple[PlannedBatch, ...]]:
        return map(self.step, range(len(self)))

    def step(self, place: int) -> tuple[PlannedBatch, ...]:
        """Return the parts of a step."""
        parts = len(self.part_seconds) // len(self)
        first = int(self.order[place]) * parts
        return tuple(self._part(first + part, Position(self.number, place), part) for part in range(parts))

    def _part(self, index: int, position: Position, part: int) -> PlannedBatch:
        inside = slice(self.part_starts[index], self.part_starts[index + 1])
        draws = map(Draw, self.takes[inside].tolist(), self.copies[inside].tolist())
        return PlannedBatch(position, tuple(draws), float(self.part_seconds[index]), part)


class BucketSampler:
    """Draws batches of clips of similar length, epoch after epoch.

    In an epoch a clip of weight w is drawn floor(w) or ceil(w) times, w on average. All parts of a step are of one
    bucket, so that processes take equally long, and are padded to its length (if all buckets have one length, each to
    its own longest clip). Parts are full, except in the last step of each bucket, whose parts share the rest evenly.
    The order of steps is random.
    """

    def __init__(
        self,
        seconds: ArrayLike,
        weights: ArrayLike,
        buckets: Buckets,
        seed: int,
        labels: ArrayLike | None = None,
        parts: int = 1,
    ) -> None:
        """Prepare to sample clips by their seconds, labels and weights (how often an epoch has each)."""
        self._weights = np.asarray(weights, dtype=np.float64)
        numbers = np.zeros(len(self._weights), np.int64) if labels is None else labels
        self._bucket = buckets.of_all(seconds, numbers).astype(np.int16)  # there are at most 10,000
        self._seconds = np.asarray(seconds, dtype=np.float64) if len(buckets.bounds) == 1 else None
        self._parts = parts
        self._buckets = buckets
        self._seed = seed

    @property
    def buckets(self) -> list[tuple[Bucket, int, int]]:
        """The buckets, each with its number of clips, and the clips of a full batch."""
        clips = np.bincount(self._bucket, minlength=len(self._buckets.all)).tolist()
        return [(bucket, clips[number], self._buckets.rows(number)) for number, bucket in enumerate(self._buckets.all)]

    def epoch(self, number: int) -> Epoch:
        """Return the steps of an epoch."""
        random = np.random.default_rng([self._seed, number])
        takes, copies = self._draws(random)
        order = random.permutation(len(takes))
        bucket = self._bucket[takes[order]]
        order = order[np.argsort(bucket, kind="stable")]
        ends = np.cumsum(np.bincount(bucket, minlength=len(self._buckets.all))).tolist()
        starts: list[int] = []
        seconds: list[float] = []
        for place, (shape, first, end) in enumerate(zip(self._buckets.all, [0, *ends], ends, strict=False)):
            begin = range(first, end, self._buckets.rows(place) * self._parts)
            starts += begin
            seconds += [shape.seconds] * len(begin)
        edges = np.array([*starts, len(takes)])
        shares = np.diff(edges)[:, None] * np.arange(self._parts) // self._parts
        part_starts = np.append((edges[:-1, None] + shares).ravel(), len(takes))
        drawn, numbers = (each[order].astype(np.int32) for each in (takes, copies))
        if self._seconds is not None and starts:
            part_seconds = np.maximum.reduceat(self._seconds[drawn], part_starts[:-1])
        else:
            part_seconds = np.repeat(seconds, self._parts)
        return Epoch(number, drawn, numbers, part_starts, part_seconds, random.permutation(len(starts)))

    def batches(self, start: Position, own: range | None = None) -> Iterator[PlannedBatch]:
        """Yield the parts ``own`` of each step, or all, without end, from the step at ``start``.

        A position after the end of an epoch begins the next.
        """
        own = range(self._parts) if own is None else own
        number, first = start.epoch, start.batch
        while True:
            epoch = self.epoch(number)
            for place in range(first, len(epoch)):
                step = epoch.step(place)
                yield from (step[part] for part in own)
            number, first = number + 1, 0

    def _draws(self, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the draws of an epoch: the take of each, and its number among those of its take."""
        whole = np.floor(self._weights)
        counts = (whole + (random.random(len(self._weights)) < self._weights - whole)).astype(np.int64)
        takes = np.repeat(np.arange(len(counts)), counts)
        return takes, np.arange(len(takes)) - np.repeat(np.cumsum(counts) - counts, counts)
