"""Batches for the loop, loaded by threads while it computes."""

from collections.abc import Generator
from dataclasses import replace

from training.ahead import ahead
from training.batch import Batch, collate
from training.errors import ManifestError
from training.examples import Examples
from training.sampler import BucketSampler, PlannedBatch, Position
from training.student import FRONT_END


def load(
    sampler: BucketSampler, examples: Examples, start: Position, student_stride: int
) -> Generator[Batch, None, None]:
    """Yield batches without end, from the one at ``start``.

    A clip that cannot be read is left out, and its batch says so. A batch of which no clip can be read holds a second
    of silence instead, in which nothing is said: every batch is a step, here and wherever else it is taken.
    """

    def one(plan: PlannedBatch) -> Batch:
        made, skipped = [], []
        for draw in plan.draws:
            try:
                made.append(examples.make(plan.position.epoch, draw))
            except ManifestError as error:
                skipped.append(str(error))
        samples = round(plan.seconds * FRONT_END.sample_rate)
        batch = collate(
            made or [examples.silence()],
            plan.position,
            samples if made else 0,
            FRONT_END.hop,
            student_stride,
            FRONT_END.sample_rate,
        )
        audio_seconds = batch.audio_seconds if made else 0.0
        return replace(batch, skipped=tuple(skipped), audio_seconds=audio_seconds)

    return ahead(one, sampler.batches(start))
