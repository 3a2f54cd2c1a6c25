"""A profile of a batch: the operations of a CPU, or the kernels of a GPU, that take most of the time.

The batch is timed before it is profiled, because profiling slows it down. A share is a part of the time of all
operations. On a GPU the sum is less than the time of the call if the device idled, and more if kernels overlapped.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.latency import add_model_options, chosen_models, model_name, speech
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import Latency, times_of
from models import Transcriber, Transcript

# Names are cut to this length: those of kernels include template arguments.
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of an operation in a call: seconds without those of its child operations, and number of runs."""

    operation: str
    seconds: float
    times: float


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    parser.add_argument("--decoder", help="default: the model's first")
    parser.add_argument("--audio", help="recording to repeat; noise when none is given")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=7, help="number of calls to time, and then to profile")
    parser.add_argument("--top", type=int, default=15, help="operations that have a row of their own")
    add_rows_option(parser)
    args = parser.parse_args()

    models = chosen_models(args)
    model = next(iter(models.values()))
    about = {"model": model_name(args), "decoder": args.decoder or model.decoders[0], "batch": args.batch}
    about |= {option: getattr(args, option) for option in ("seconds", "audio", "repeats", "top")}
    rows = Rows("profile", about | describe(model.device), args.rows)
    clip = speech(args.audio, model.sample_rate, args.seconds).numpy()
    for (dtype,) in tqdm(rows.missing((dtype,) for dtype in args.dtypes), unit="dtype", disable=None):
        waveforms, lengths = models[dtype].model.batch([clip] * args.batch)
        models[dtype].model.prepare(*waveforms.shape)
        call = partial(_transcribe, models[dtype], waveforms, lengths, args.decoder)
        whole = Latency.of(times_of(call, args.repeats)).p50
        spent = spent_on(call, args.repeats, model.device)
        total = sum(one.seconds for one in spent)
        totals = [Spent("the call", whole, 1), Spent("all operations", total, sum(one.times for one in spent))]
        measured = [*totals, *largest(spent, args.top)]
        rows.add((dtype,), *({"dtype": dtype, **asdict(one), "share": one.seconds / total} for one in measured))
    print(f"{'dtype':>9} {'ms':>9} {'share':>7} {'times':>7}  operation")
    for row in rows:
        figures = f"{1000 * row['seconds']:9.2f} {100 * row['share']:5.1f} % {row['times']:7.0f}"
        print(f"{row['dtype']:>9} {figures}  {row['operation']}")
    print(rows.line())


def spent_on(call: Callable[[], object], repeats: int, device: torch.device) -> list[Spent]:
    """Return the cost in a call of each operation, on a GPU of each kernel, the largest first.

    Raises:
        RuntimeError: if the profiler recorded none.
    """
    on_gpu = device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    # acc_events avoids a warning of torch 2.11 about profiling cycles.
    with profile(activities=[activity], acc_events=True) as profiled:
        for _ in range(repeats):
            call()
    where = "CUDA" if on_gpu else "CPU"
    found = [
        Spent(
            one.key[:_LONGEST_NAME],
            1e-6 * (one.self_device_time_total if on_gpu else one.self_cpu_time_total) / repeats,
            one.count / repeats,
        )
        for one in profiled.key_averages()
        if one.device_type.name == where
    ]
    spent = sorted((one for one in found if one.seconds), key=lambda one: one.seconds, reverse=True)
    if not spent:
        raise RuntimeError("the profiler saw nothing: a container may need the right to read a GPU's counters")
    return spent


def largest(spent: Sequence[Spent], count: int) -> list[Spent]:
    """Return the first ``count`` operations, and the sum of the others."""
    others = spent[count:]
    if not others:
        return list(spent)
    together = Spent(f"{len(others)} others", sum(one.seconds for one in others), sum(one.times for one in others))
    return [*spent[:count], together]


def _transcribe(model: Transcriber, waveforms: Tensor, lengths: Tensor, decoder: str | None) -> list[Transcript]:
    return model.recognize_batch(waveforms, lengths, decoder=decoder).transcripts()


if __name__ == "__main__":
    main()
