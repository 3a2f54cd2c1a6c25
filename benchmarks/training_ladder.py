"""Clips per second of training, for each way to form batches, one added to the other.

    OMP_NUM_THREADS=1 python -m benchmarks training_ladder MANIFEST --vocabulary FILE --rows FILE

Takes real training steps of an attention decoder on real clips, which are read before: as many batches of each rung,
the same number of each of its buckets, full ones, in turns over all rungs and rounds. The time of an epoch is the mean
time of a bucket's batches multiplied by their number. On a CPU it is the processor time of this process, which depends
little on other load. The last rung changes the precision of the
one before. The clips per second of an epoch are printed, also as a multiple of the first rung's; then the
multiple to expect from padding alone, at the mean cost of a second and of a label, and the share of clips in the
batches that were timed.

All ways but the first leave out clips of too many labels a second: the largest one batch size that fits the memory;
buckets of equal seconds; for each of these the largest batch that fits (what a batch-size search finds); and buckets by
seconds and labels, filled in the same way. The memory is what the first way's batch would take if each of its clips
were the longest and had the most labels; batches are assumed to take it in proportion to padded seconds and labels.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from benchmarks.environment import describe
from training.augment import Augmenter
from training.batch import Batch, collate
from training.buckets import Buckets, buckets_of_equal_audio
from training.examples import Examples
from training.manifest import read_manifest
from training.precision import set_products
from training.recipe import Precision
from training.recipe_file import read_recipe
from training.run import Run
from training.sampler import BucketSampler, PlannedBatch
from training.step import take_step
from training.student import FRONT_END


@dataclass
class MeasuredRung:
    """A rung of the ladder, and the times of its steps."""

    name: str
    precision: Precision
    buckets: Buckets
    examples: Examples
    labels: list[int]
    batches: dict[int, list[Batch]] = field(default_factory=dict)
    times: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seconds = [take.seconds for take in self.examples.takes]
        self.sampler = BucketSampler(self.seconds, [1.0] * len(self.seconds), self.buckets, 0, self.labels)

    def clips_a_second(self) -> float:
        """Return the clips of an epoch divided by its time."""
        times = [
            # A bucket that does not fill a batch has one, which was timed with the clips that there are.
            max(1.0, clips / rows) * statistics.fmean(self.times[bucket])
            for bucket, (_, clips, rows) in enumerate(self.sampler.buckets)
            if clips
        ]
        return len(self.seconds) / sum(times)

    def covered(self) -> float:
        """Return the share of the clips that are in measured batches."""
        measured = sum(len(batch.lengths) for batches in self.batches.values() for batch in batches)
        return min(1.0, measured / len(self.seconds))

    def sizes(self) -> list[tuple[float, float, float]]:
        """Return of each measured batch its padded audio in seconds, its padded labels, and its mean time."""
        rate = FRONT_END.sample_rate
        return [
            (
                batch.waveforms.numel() / rate,
                float(batch.sequences.numel()),
                statistics.fmean(self.times[bucket][place :: len(batches)]),
            )
            for bucket, batches in self.batches.items()
            for place, batch in enumerate(batches)
        ]

    def expected(self, audio: float, label: float) -> float:
        """Return the clips a second to expect by padding, at what a second of audio and a label take, in seconds."""
        _, seconds, labels = self.padded()
        return len(self.seconds) / (seconds * audio + labels * label)

    def padded(self) -> tuple[float, float, float]:
        """Return the batches of an epoch, and its seconds and labels with padding."""
        batches = padded((self.seconds, self.labels), self.buckets)
        seconds, labels = batches[:, 1:].sum(axis=0).tolist()
        return len(batches), seconds, labels

    def read(self, count: int) -> None:
        """Read ``count`` batches, the same number of each bucket and at least one, full ones if there are any."""
        steps = list(self.sampler.epoch(0))
        count = max(1, count // sum(clips > 0 for _, clips, _ in self.sampler.buckets))
        for bucket, (_, clips, rows) in enumerate(self.sampler.buckets):
            if not clips:
                continue
            inside = [number for number, (batch,) in enumerate(steps) if self._bucket(batch.draws[0].take) == bucket]
            full = [number for number in inside if len(steps[number][0].draws) == min(rows, clips)]
            self.batches[bucket] = [self._read(steps[number][0]) for number in (full or inside)[:count]]
            self.times[bucket] = []

    def _read(self, plan: PlannedBatch) -> Batch:
        """Read a batch."""
        samples = round(plan.seconds * FRONT_END.sample_rate)
        examples = [self.examples.make(plan.position.epoch, draw) for draw in plan.draws]
        return collate(examples, plan.position, samples)

    def _bucket(self, take: int) -> int:
        return int(self.buckets.of_all([self.seconds[take]], [self.labels[take]])[0])


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--vocabulary", type=Path, required=True, help="SentencePiece model, or .nemo checkpoint")
    parser.add_argument("--seconds", type=float, default=60, help="of audio and padding in the first rung's batch")
    parser.add_argument("--buckets", type=int, default=5)
    parser.add_argument("--label-buckets", type=int, default=4)
    parser.add_argument("--max-labels-per-second", type=float, default=10)
    parser.add_argument("--labels-per-second", type=float, default=25, help="labels that cost as much as a second")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4, help="of the encoder")
    parser.add_argument("--decoder-layers", type=int, default=4)
    parser.add_argument("--channels", type=int, default=64, help="of the encoder's subsampling")
    parser.add_argument("--clips", type=int, help="of the manifest, at regular distances")
    parser.add_argument("--batches", type=int, default=40, help="of each rung, shared among its buckets")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--half", choices=("bfloat16", "float16"), default="bfloat16", help="of the last rung")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=Path, help="where to keep the JSON line as well")
    args = parser.parse_args()
    device = torch.device(args.device)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(read_recipe(_recipe(args, Path(folder))), Path(folder), device)
        rungs = _rungs(run, args)
        for rung in rungs:
            rung.read(args.batches)
        for number in range(args.rounds + 1):  # the first is a warm-up
            for bucket in sorted({bucket for rung in rungs for bucket in rung.batches}):
                for rung in rungs:
                    for batch in rung.batches.get(bucket, []):
                        seconds = _step(run, batch, rung.precision)
                        rung.times[bucket] += [seconds] if number else []
    _print(rungs, device, args.rows)


def _recipe(args: argparse.Namespace, folder: Path) -> Path:
    rows = read_manifest(args.manifest)
    step = max(1, len(rows) // (args.clips or len(rows)))
    lines = [
        {"audio": str(clip.audio.resolve()), "duration": clip.seconds, "text": clip.text}
        for clip in rows[::step]
        if clip.text is not None
    ]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    student = {"layers": args.layers, "width": args.width, "heads": 4, "subsampling_channels": args.channels}
    document = {
        "steps": 1_000_000,
        "data": {"manifests": ["manifest.jsonl"]},
        "batches": {"seconds": args.seconds, "buckets": args.buckets},
        "student": student | {"attention": {"width": args.width, "layers": args.decoder_layers, "heads": 4}},
        "languages": [{"code": "en", "vocabulary": str(args.vocabulary.resolve())}],
        "optimizer": {"peak": 0.0001, "warmup": 0},
        "dropout": 0.0,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document))
    return folder / "recipe.yaml"


def _rungs(run: Run, args: argparse.Namespace) -> list[MeasuredRung]:
    most = args.max_labels_per_second
    kept = [take for take in run.takes if len(run.vocabulary.encode(take.clip.text or "")) <= most * take.seconds]
    labels = dict(zip(run.takes, run.takes.labels.tolist(), strict=True))
    augmenter = Augmenter(run.recipe.augmentation)
    every, some = (Examples(takes, run.vocabulary, augmenter, 0, run.config) for takes in (run.takes, kept))

    def sizes(examples: Examples) -> tuple[list[float], list[int]]:
        return [take.seconds for take in examples.takes], [labels[take] for take in examples.takes]

    def cost(audio: float, text: float) -> float:
        return audio + text / float(args.labels_per_second)

    rungs = []
    for name, is_filtered, buckets, _ in ways(sizes(every), sizes(some), args, cost):
        examples = some if is_filtered else every
        rungs.append(MeasuredRung(name, "float32", buckets, examples, sizes(examples)[1]))
    last = rungs[-1]
    return [*rungs, MeasuredRung(f"+ {args.half}", args.half, last.buckets, last.examples, last.labels)]


def ways(
    all_clips: tuple[list[float], list[int]],
    kept: tuple[list[float], list[int]],
    args: argparse.Namespace,
    cost: Callable[[float, float], float],
) -> list[tuple[str, bool, Buckets, float]]:
    """Return ways to make batches: a name, whether clips of too many labels a second are left out, buckets, budget."""
    one = buckets_of_equal_audio(all_clips[0], 1, args.seconds, all_clips[1])
    # What the first rung's batch would take if each of its clips were the longest and had the most labels.
    budget = cost(args.seconds, one.rows(0) * max(all_clips[1]))
    filtered = _filled(buckets_of_equal_audio(kept[0], 1, args.seconds, kept[1]), cost, budget)
    equal = buckets_of_equal_audio(kept[0], args.buckets, args.seconds, kept[1])
    both = buckets_of_equal_audio(kept[0], args.buckets, args.seconds, kept[1], args.label_buckets)
    return [
        ("one fixed batch", False, one, budget),
        ("+ a filter of labels per second", True, filtered, budget),
        ("+ buckets of equal seconds", True, equal, budget),
        ("+ a batch-size search", True, _filled(equal, cost, budget), budget),
        ("+ buckets of seconds and labels", True, _filled(both, cost, budget), budget),
    ]


def _filled(buckets: Buckets, cost: Callable[[float, float], float], budget: float) -> Buckets:
    """Return buckets whose batches fill the memory."""
    rows = tuple(max(1, int(budget / cost(bucket.seconds, bucket.labels))) for bucket in buckets.all)
    return replace(buckets, counts=rows)


def padded(clips: tuple[list[float], list[int]], buckets: Buckets) -> NDArray[np.float64]:
    """Return the clips, the seconds and the labels of each batch of an epoch, [batches, 3].

    Labels are padded to the most of their batch; audio to the length of its bucket, or without buckets to the longest
    of its batch.
    """
    seconds, labels = clips
    sampler = BucketSampler(seconds, [1.0] * len(seconds), buckets, 0, labels)
    batches = [batch for (batch,) in sampler.epoch(0)]
    takes = [[draw.take for draw in batch.draws] for batch in batches]
    lengths = [batch.seconds for batch in batches]
    most = [max(labels[take] for take in some) for some in takes]
    counts = np.array([len(some) for some in takes], float)
    return np.stack([counts, counts * lengths, counts * most], axis=1)


def _step(run: Run, batch: Batch, precision: Precision) -> float:
    """Take a step, and return the seconds that it took."""
    run.recipe = replace(run.recipe, precision=precision)
    set_products(precision)
    clock = time.perf_counter if run.device.type == "cuda" else time.process_time
    began = clock()
    take_step(run, batch)  # it ends with numbers on the host, so the device is done
    return clock() - began


def _print(rungs: list[MeasuredRung], device: torch.device, path: Path | None) -> None:
    # Fitted to all batches in float32, without a constant: what each step costs by itself is shared among both.
    measured = np.array([size for rung in rungs if rung.precision == "float32" for size in rung.sizes()])
    audio_cost, label_cost = np.linalg.lstsq(measured[:, :2], measured[:, 2], rcond=None)[0].tolist()
    print(f"a second of audio takes {1000 * audio_cost:.2f} ms, a label {1000 * label_cost:.2f} ms, padding included")
    print(f"{'each row adds':36} clips in a batch  padding: audio  labels  clips/s  times the first  by padding  timed")
    expected = [rung.expected(audio_cost, label_cost) for rung in rungs]
    first = rungs[0].clips_a_second()
    rows = []
    for rung, forecast in zip(rungs, expected, strict=True):
        batches, padded_seconds, padded_labels = rung.padded()
        clips = len(rung.seconds) / batches
        audio, labels = 1 - sum(rung.seconds) / padded_seconds, 1 - sum(rung.labels) / padded_labels
        speed = rung.clips_a_second()
        rows.append({"name": rung.name, "clips": clips, "audio": audio, "labels": labels, "clips_a_second": speed})
        rows[-1] |= {"expected": forecast, "covered": rung.covered()}
        print(
            f"{rung.name:36} {clips:15.1f} {audio:15.1%} {labels:7.1%} {speed:8.2f} {speed / first:16.2f} "
            f"{forecast / expected[0]:11.2f} {rung.covered():6.0%}"
        )
    line = json.dumps({"benchmark": "training_ladder", **describe(device), "rungs": rows})
    print(line)
    if path:
        path.write_text(line + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
