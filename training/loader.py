"""Batches for the loop, loaded by threads while it computes."""

from collections.abc import Generator

from training.ahead import ahead
from training.batch import Batch, collate
from training.examples import Examples
from training.sampler import BucketSampler, PlannedBatch, Position
from training.student import FRONT_END


def load(
    sampler: BucketSampler, examples: Examples, start: Position, student_stride: int
) -> Generator[Batch, None, None]:
    """Yield batches without end, from the one at ``start``.

    Raises:
        ManifestError: if the audio of a clip cannot be read.
    """

    def one(plan: PlannedBatch) -> Batch:
        made = [examples.make(plan.position.epoch, draw) for draw in plan.draws]
        samples = round(plan.seconds * FRONT_END.sample_rate)
        return collate(made, plan.position, samples, FRONT_END.hop, student_stride, FRONT_END.sample_rate)

    return ahead(one, sampler.batches(start))
