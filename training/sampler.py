"""Which clips are in which batch: a function of the seed and the epoch, so a run resumes from two numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from training.buckets import Buckets


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A batch of a run: its epoch, and its number there."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """A take in an epoch.

    Attributes:
        take: its index.
        copy: which of its draws in this epoch it is, from 0.
    """

    take: int
    copy: int


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch to be loaded.

    Attributes:
        position: where it stands.
        draws: what it holds.
        seconds: length that its clips are padded to.
    """

    position: Position
    draws: tuple[Draw, ...]
    seconds: float


class BucketSampler:
    """Draws batches of clips of similar length, epoch after epoch.

    In an epoch a clip of weight w is drawn floor(w) or ceil(w) times, w on average. A batch is full but for the last
    one of each bucket, and the order of the batches is random.
    """

    def __init__(self, seconds: Sequence[float], weights: Sequence[float], buckets: Buckets, seed: int) -> None:
        """Sample clips of these lengths.

        Args:
            seconds: length of each clip.
            weights: how often to draw each clip in an epoch.
            buckets: lengths of batches; the longest clip fits.
            seed: of all choices.
        """
        self._weights = np.asarray(weights, dtype=np.float64)
        self._bucket = np.asarray([buckets.bucket(length) for length in seconds])
        self._buckets = buckets
        self._seed = seed

    def epoch(self, number: int) -> list[PlannedBatch]:
        """Return the batches of an epoch, in order."""
        random = np.random.default_rng([self._seed, number])
        draws = self._draws(random)
        batches: list[tuple[tuple[Draw, ...], float]] = []
        for bucket, bound in enumerate(self._buckets.bounds):
            inside = [draw for draw in draws if self._bucket[draw.take] == bucket]
            rows = self._buckets.rows(bucket)
            batches += [(tuple(inside[start : start + rows]), bound) for start in range(0, len(inside), rows)]
        order = random.permutation(len(batches))
        return [PlannedBatch(Position(number, place), *batches[index]) for place, index in enumerate(order)]

    def batches(self, start: Position) -> Iterator[PlannedBatch]:
        """Yield batches without end, from the one at ``start``; one past the end of its epoch opens the next."""
        yield from self.epoch(start.epoch)[start.batch :]
        epoch = start.epoch + 1
        while True:
            yield from self.epoch(epoch)
            epoch += 1

    def _draws(self, random: np.random.Generator) -> list[Draw]:
        """Return the draws of an epoch in random order."""
        whole = np.floor(self._weights)
        counts = (whole + (random.random(len(self._weights)) < self._weights - whole)).astype(np.int64)
        draws = [Draw(take, copy) for take, count in enumerate(counts.tolist()) for copy in range(count)]
        return [draws[index] for index in random.permutation(len(draws))]
