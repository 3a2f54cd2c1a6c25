"""The shapes of batches: the lengths that utterances are padded to, and how many of a length fit a batch.

The front forms batches by these rules and engines warm up by them, so that every shape was prepared: capturing and
compiling for the first batch of a shape takes time, which requests should not wait for.
"""

from bisect import bisect_left
from collections.abc import Sequence

# Resampling may make a recording of the longest length a little longer.
_SLACK_SECONDS = 0.1


def padded_samples(edges: Sequence[float], sample_rate: int) -> list[int]:
    """Return the lengths that a GPU pads utterances to, in samples, ascending.

    Args:
        edges: upper bounds of the length buckets in seconds, in any order; at least one.
        sample_rate: in Hz.
    """
    *lower, last = sorted(edges)
    return [max(1, round(seconds * sample_rate)) for seconds in (*lower, last + _SLACK_SECONDS)]


def computed_seconds(longest: float, padded: Sequence[float]) -> float:
    """Return the length of each utterance of a batch with its padding, in seconds.

    Args:
        longest: seconds of the batch's longest utterance.
        padded: lengths that utterances are padded to, in seconds, ascending; none where they are padded to the longest.
    """
    place = bisect_left(padded, longest)
    return padded[place] if place < len(padded) else longest


def most_rows(batch_seconds: float, seconds: float) -> int:
    """Return how many utterances of ``seconds``, padding included, a batch of ``batch_seconds`` may have."""
    return max(1, int(batch_seconds / seconds))
