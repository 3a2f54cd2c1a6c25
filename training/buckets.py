"""Length buckets: few shapes of batches, and little padding in each."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buckets:
    """Lengths that batches may have.

    Attributes:
        bounds: longest clip of each bucket in seconds, ascending; the last holds the longest of all.
        batch_seconds: audio and padding that a batch may hold; a longer clip has a batch to itself.
    """

    bounds: tuple[float, ...]
    batch_seconds: float

    def bucket(self, seconds: float) -> int:
        """Return the bucket of a clip."""
        return bisect_left(self.bounds, seconds)

    def rows(self, bucket: int) -> int:
        """Return how many clips fill a batch."""
        return max(1, int(self.batch_seconds / self.bounds[bucket]))


def buckets_of_equal_audio(seconds: Sequence[float], count: int, batch_seconds: float) -> Buckets:
    """Return up to ``count`` buckets between which clips of these lengths divide their audio evenly.

    Where many clips have one length, fewer buckets do.
    """
    ascending = sorted(seconds)
    total = sum(ascending)
    bounds: list[float] = []
    passed = 0.0
    for length in ascending:
        passed += length
        if passed >= total * (len(bounds) + 1) / count and len(bounds) < count - 1 and length not in bounds[-1:]:
            bounds.append(length)
    if ascending[-1] not in bounds[-1:]:
        bounds.append(ascending[-1])
    return Buckets(tuple(bounds), batch_seconds)
