"""Finding the batch size of each bucket: the largest that fits a GPU, or the one beyond which a CPU is not faster.

Each size is tried by a step of the real model (forward, backward and optimizer), on noise of the bucket's length with
as many labels as the bucket may have.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch

from models.config import ModelConfig
from models.device.memory import is_out_of_memory
from training.batch import Batch
from training.buckets import Bucket
from training.memory import forget_peak, peak_bytes
from training.recipe import Optimizer
from training.run import Run
from training.sampler import Position
from training.step import take_step
from training.student import FRONT_END

# A search ends when the size that fits and the one that does not differ by at most this share.
_TOLERANCE = 0.05
# On a CPU, a batch is doubled as long as that increases the clips per second by at least this factor.
_WORTH_IT = 1.05


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of a step: its time, endless if it does not fit, and its peak of GPU memory (None on a CPU)."""

    seconds: float
    bytes: int | None = None

    @property
    def fits(self) -> bool:
        """Whether the step fits the memory."""
        return self.seconds < math.inf


# Returns the cost of a step with a number of clips of a bucket.
Measure = Callable[[Bucket, int], Measured]


@dataclass(frozen=True, slots=True)
class Found:
    """The batch size found for a bucket of some clips, the recipe's, and the cost of a step with each."""

    bucket: Bucket
    clips: int
    rows: int
    step: Measured
    given_rows: int
    given: Measured


def largest_that_fits(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` that fits, or one at most 5 % below it; 0 if none fits.

    Numbers are doubled until one does not fit, and then bisected.
    """
    fitting, failing = 0, most + 1
    while failing - fitting > max(1, int(failing * _TOLERANCE)):
        trying = max(1, 2 * fitting) if failing == most + 1 and 2 * fitting <= most else (fitting + failing) // 2
        if fits(trying):
            fitting = trying
        else:
            failing = trying
    return fitting


def fastest(speed: Callable[[int], float], most: int) -> int:
    """Return the batch size up to ``most`` beyond which doubling it hardly increases the clips in a second."""
    rows, best = 1, speed(1)
    while 2 * rows <= most:
        next_speed = speed(2 * rows)
        if next_speed < _WORTH_IT * best:
            break
        rows, best = 2 * rows, next_speed
    return rows


def probe(buckets: Sequence[tuple[Bucket, int, int]], measure: Measure, *, by_memory: bool) -> list[Found]:
    """Find the batch size of each bucket, the longest first: the largest that fits (``by_memory``), or the fastest.

    Buckets have their number of clips, and the recipe's batch size.

    Raises:
        MemoryError: if a single clip of a bucket does not fit.
    """
    found: list[Found] = []
    for bucket, clips, given_rows in reversed(buckets):
        step = cache(partial(measure, bucket))
        most = max(1, clips)
        if by_memory:
            rows = largest_that_fits(lambda rows, step=step: step(rows).fits, most)  # type: ignore[misc]
        else:
            rows = fastest(lambda rows, step=step: rows / step(rows).seconds, most)  # type: ignore[misc]
        if not step(max(1, rows)).fits:
            raise MemoryError(f"a clip of {bucket.seconds:.1f} s with {bucket.labels} labels")
        found.append(Found(bucket, clips, rows, step(rows), given_rows, step(given_rows)))
    return found[::-1]


def table(found: Sequence[Found], optimizer: Optimizer) -> list[str]:
    """Return lines with the batch sizes found, how much faster an epoch is, and which rate and average suit them."""
    lines = ["seconds  labels   clips  batch     step   memory"]
    for one in found:
        memory = "" if one.step.bytes is None else f"{one.step.bytes / 2**30:.2f} GiB"
        lines.append(
            f"{one.bucket.seconds:7.1f} {one.bucket.labels:7} {one.clips:7,} {one.rows:6} "
            f"{1000 * one.step.seconds:5.0f} ms {memory:>8}"
        )
    own = sum(one.clips / one.rows * one.step.seconds for one in found)
    given = sum(one.clips / one.given_rows * one.given.seconds for one in found)
    name = "the recipe's batches"
    lines.append(
        f"an epoch is {given / own:.2f} x as fast as with {name}" if given < math.inf else f"{name}: do not fit"
    )
    if given <= own:
        return [*lines, "keep the recipe's batches: the others are no faster"]
    rows = ", ".join(str(one.rows) for one in found)
    return [*lines, _suited(found, optimizer), f"for the recipe: batches: {{rows: [{rows}], ...}}"]


def _suited(found: Sequence[Found], optimizer: Optimizer) -> str:
    """Return a line with the learning rate and the average that suit the new batches.

    With k times the clips in a step, the rate of an adaptive optimizer grows by the root of k (Malladi et al., 2022,
    arXiv 2205.10287), and the average forgets k steps in one (Busbridge et al., 2023, arXiv 2307.13813).
    """
    times = sum(one.clips / one.given_rows for one in found) / sum(one.clips / one.rows for one in found)
    peak, ema = min(1.0, optimizer.peak * times**0.5), optimizer.ema**times
    suited = f"optimizer: {{peak: {peak:.3g}, ema: {ema:.4g}}}"
    return f"a step has {times:.2f} times the clips; to learn as before: {suited}"


def measured(run: Run, bucket: Bucket, rows: int) -> Measured:
    """Take two steps of ``rows`` clips, after which the weights are of no use.

    Returns:
        The second's time and the peak of both.
    """
    device, batch = run.device, noise(run.config, bucket, rows)
    try:
        forget_peak(device)
        take_step(run, batch)
        began = time.perf_counter()
        take_step(run, batch)
        seconds = time.perf_counter() - began
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        seconds = math.inf
    if seconds == math.inf:
        # Only here, where the error and what its frames held is gone, are the tensors of the step free.
        run.optimizer.zero_grad()
        torch.cuda.empty_cache()
    return Measured(seconds, peak_bytes(device) if device.type == "cuda" else None)


def noise(config: ModelConfig, bucket: Bucket, rows: int) -> Batch:
    """Return a batch of noise with the length and the number of labels of the largest clips of a bucket."""
    random = torch.Generator().manual_seed(0)
    samples = max(FRONT_END.hop, int(bucket.seconds * FRONT_END.sample_rate))
    attends = config.attention is not None
    most = config.attention.positions if config.attention else bucket.labels
    labels = torch.randint(config.vocabulary_size, (rows, max(2, min(bucket.labels, most))), generator=random)
    counts = torch.full((rows,), labels.size(1))
    return Batch(
        position=Position(),
        waveforms=0.1 * torch.randn(rows, samples, generator=random),
        lengths=torch.full((rows,), samples),
        masked_frames=torch.zeros(rows, samples // FRONT_END.hop, dtype=torch.bool),
        masked_mels=torch.zeros(rows, config.features.mels, dtype=torch.bool),
        tokens=labels,
        token_lengths=counts,
        sequences=labels if attends else labels[:, :0],
        sequence_lengths=counts if attends else torch.zeros_like(counts),
        audio_seconds=rows * samples / FRONT_END.sample_rate,
    )
