"""Loading batches in threads, while the training loop computes."""

from collections.abc import Generator
from dataclasses import replace

from training.ahead import ahead
from training.batch import Batch, collate
from training.errors import ManifestError
from training.examples import Examples
from training.sampler import BucketSampler, PlannedBatch, Position
from training.student import FRONT_END


def load(
    sampler: BucketSampler,
    examples: Examples,
    start: Position,
    own: range | None = None,
    *,
    pins: bool = False,
) -> Generator[Batch, None, None]:
    """Yield batches without end, from the step at ``start``: the parts ``own`` of each step, or all.

    With ``pins``, which needs a GPU, they are in pinned memory.

    A clip that cannot be used is left out, and listed in its batch. A batch without clips holds a second of silence
    instead, which has no loss, because all processes must take each step together.
    """

    def one(plan: PlannedBatch) -> Batch:
        made, skipped = [], []
        for draw in plan.draws:
            try:
                made.append(examples.make(plan.position.epoch, draw))
            except ManifestError as error:
                skipped.append(str(error))
        samples = round(plan.seconds * FRONT_END.sample_rate) if made else 0
        batch = collate(made or [examples.silence()], plan.position, samples)
        batch = replace(batch.pinned() if pins else batch, skipped=tuple(skipped), part=plan.part)
        return batch if made else replace(batch, is_silence=True, audio_seconds=0.0)

    return ahead(one, sampler.batches(start, own))
