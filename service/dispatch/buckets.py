"""Length buckets: which utterances are close enough in length to run together."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

# From 2 s on, edges grow by a third to a half: a batch inside one bucket has a third of padding at worst and about a
# seventh on average, and a GPU, which pads to edges, sees few shapes.
DEFAULT_EDGES: tuple[float, ...] = (
    *(1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0),
    *(128.0, 192.0, 256.0, 384.0, 512.0, 768.0),
)


def bucket_edges(longest_seconds: float, edges: Sequence[float] = DEFAULT_EDGES) -> list[float]:
    """Return the edges in use, ascending; the last one is ``longest_seconds``.

    Raises:
        ValueError: if the edges are not positive and ascending.
    """
    if any(edge <= 0 for edge in edges) or any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"bucket edges must be positive and ascend: {list(edges)}")
    return [edge for edge in edges if edge < longest_seconds] + [longest_seconds]


def pick_bucket(seconds: float, edges: Sequence[float]) -> int:
    """Return the index of the smallest bucket that holds an utterance of this length.

    Args:
        seconds: length of the utterance; the last bucket also takes longer ones.
        edges: upper bounds, inclusive, ascending.
    """
    return min(bisect_left(edges, seconds), len(edges) - 1)
