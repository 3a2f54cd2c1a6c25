"""Forming batches of utterances of similar length."""

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], capacity: float) -> Iterator[list[int]]:
    """Yield the indices of utterances in batches that, padded, hold at most ``capacity`` samples, or one utterance."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > capacity:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
