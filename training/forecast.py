"""A forecast of an epoch, before it is computed."""

from collections.abc import Sequence

from training.sampler import BucketSampler
from training.takes import Take


def forecast(sampler: BucketSampler, takes: Sequence[Take], labels: Sequence[int]) -> str:
    """Return a line about the first epoch: its steps, clips and padding.

    Args:
        sampler: makes the batches.
        takes: the takes.
        labels: number of labels of each take.
    """
    batches = [batch for step in sampler.epoch(0) for batch in step if batch.draws]
    audio = padded_audio = text = padded_text = clips = 0.0
    for batch in batches:
        counts = [labels[draw.take] for draw in batch.draws]
        audio += sum(takes[draw.take].seconds for draw in batch.draws)
        padded_audio += batch.seconds * len(batch.draws)
        text += sum(counts)
        padded_text += max(counts) * len(counts)
        clips += len(counts)
    shapes = len({batch.seconds for batch in batches})
    steps = len({batch.position for batch in batches})
    return (
        f"an epoch: {steps:,} steps, {clips / max(1, len(batches)):.1f} clips a batch, {shapes} lengths; "
        f"padding {_share(audio, padded_audio)} of the audio, {_share(text, padded_text)} of the labels"
    )


def _share(real: float, padded: float) -> str:
    return f"{100 * (1 - real / padded) if padded else 0:.1f} %"
