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
    sampler: BucketSampler, examples: Examples, start: Position, student_stride: int, own: range | None = None
) -> Generator[Batch, None, None]:
    """Yield batches without end, from the step at ``start``: of each step those parts that are one's own, or all.

    A clip that cannot be read is left out, and its batch says so. A batch of which no clip can be read, or that
    has none, holds a second of silence instead, which nothing is learned from: those who train together step together.
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
        batch = replace(batch, skipped=tuple(skipped), part=plan.part)
        return batch if made else replace(batch, is_silence=True, audio_seconds=0.0)

    return ahead(one, sampler.batches(start, own))
