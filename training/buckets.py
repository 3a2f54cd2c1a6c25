"""Buckets of clips by length, and by labels where these are padded too: few shapes of batches, with little padding."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The upper bounds of a bucket."""

    seconds: float  # longest clip
    labels: int  # most labels of a transcript


@dataclass(frozen=True, slots=True)
class Buckets:
    """Shapes that batches may have."""

    all: tuple[Bucket, ...]  # the buckets, ascending by seconds, and by labels among those of equal seconds
    batch_seconds: float  # audio and padding that a batch may hold; a longer clip has a batch to itself
    # Clips of a full batch of each bucket, in place of ``batch_seconds``, or None.
    counts: tuple[int, ...] | None = None

    @property
    def bounds(self) -> tuple[float, ...]:
        """The lengths that batches may have, in seconds, ascending."""
        return tuple(dict.fromkeys(bucket.seconds for bucket in self.all))

    def of_all(self, seconds: ArrayLike, labels: ArrayLike) -> NDArray[np.int64]:
        """Return the index of each clip's bucket: of the shortest that hold it, the one with the fewest labels."""
        bounds, edges = np.array([(bucket.seconds, bucket.labels) for bucket in self.all]).T
        # Both as one number: which length it is, and the labels.
        of_buckets, of_clips = (
            np.searchsorted(self.bounds, lengths) * (edges.max() + 1) + numbers
            for lengths, numbers in ((bounds, edges), (seconds, np.asarray(labels)))
        )
        found: NDArray[np.int64] = np.searchsorted(of_buckets, of_clips)
        return found

    def rows(self, bucket: int) -> int:
        """Return the number of clips in a full batch."""
        if self.counts:
            return self.counts[bucket]
        return max(1, int(self.batch_seconds / self.all[bucket].seconds))


def buckets_of_equal_audio(
    seconds: ArrayLike,
    count: int,
    batch_seconds: float,
    labels: ArrayLike | None = None,
    label_buckets: int = 1,
) -> Buckets:
    """Return buckets that hold about equal audio, and are then divided by labels evenly.

    Clips of one length share a bucket, so if there are many of them, buckets are fewer or less equal. There are at most
    ``count`` lengths, and ``label_buckets`` buckets by labels for clips of similar length.
    """
    lengths = np.asarray(seconds, dtype=np.float64)
    numbers = np.zeros(len(lengths), np.int64) if labels is None else np.asarray(labels)
    bounds = _edges(lengths, count)
    of_clip = np.searchsorted(bounds, lengths)
    found = [
        Bucket(bound, int(edge))
        for number, bound in enumerate(bounds)
        for edge in _edges(numbers[of_clip == number], label_buckets)
    ]
    return Buckets(tuple(found), batch_seconds)


def _edges(sizes: NDArray[np.float64] | NDArray[np.int64], count: int) -> list[float]:
    """Return up to ``count`` bounds, the largest size last, that divide the sum of the sizes evenly."""
    values, counts = np.unique(sizes, return_counts=True)
    passed = np.cumsum(values * counts)
    total, held = float(passed[-1]), 0.0
    edges: list[float] = []
    for value, so_far in zip(values.tolist(), passed.tolist(), strict=True):
        left = count - len(edges)
        # A size may have more than its share, so the others divide what is left.
        if left > 1 and so_far - held >= (total - held) / left:
            edges.append(value)
            held = so_far
    if values[-1] not in edges[-1:]:
        edges.append(values[-1].item())
    return edges
