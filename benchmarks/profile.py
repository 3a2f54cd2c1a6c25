"""Where the time of a batch goes: the operations of a CPU, or the kernels of a GPU, that take most of it.

A call is timed before it is profiled, which slows it down; shares are of what all of its operations took. On a GPU they
take less than the call where the device had nothing to do, and more where some ran side by side.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.latency import add_model_options, chosen_models, model_name, speech
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import Latency, times_of

# Kernels' names hold the arguments of their templates.
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Spent:
    """What an operation takes of a call: seconds, without those of the operations it is made of, and how often."""

    operation: str
    seconds: float
    times: float


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    parser.add_argument("--decoder", help="instead of the model's first")
    parser.add_argument("--audio", help="recording to repeat; noise when none is given")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=7, help="calls that are timed, and calls that are profiled")
    parser.add_argument("--top", type=int, default=15, help="operations that have a row of their own")
    add_rows_option(parser)
    args = parser.parse_args()

    models = chosen_models(args)
    model = next(iter(models.values()))
    about = {"model": model_name(args), "decoder": args.decoder or model.decoders[0], "batch": args.batch}
    rows = Rows("profile", about | {"seconds": args.seconds} | describe(model.device), args.rows)
    clip = speech(args.audio, model.sample_rate, args.seconds).numpy()
    for (dtype,) in tqdm(rows.missing((dtype,) for dtype in args.dtypes), unit="dtype", disable=None):
        waveforms, lengths = models[dtype].batch([clip] * args.batch)
        models[dtype].prepare(*waveforms.shape)
        call = partial(models[dtype].transcribe_batch, waveforms, lengths, decoder=args.decoder)
        whole = Latency.of(times_of(call, args.repeats)).p50
        spent = spent_on(call, args.repeats, model.device)
        total = sum(one.seconds for one in spent)
        known = [Spent("the call", whole, 1), Spent("all operations", total, sum(one.times for one in spent))]
        measured = [*known, *largest(spent, args.top)]
        rows.add((dtype,), *({"dtype": dtype, **asdict(one), "share": one.seconds / total} for one in measured))
    print(f"{'dtype':>9} {'ms':>9} {'share':>7} {'times':>7}  operation")
    for row in rows:
        figures = f"{1000 * row['seconds']:9.2f} {100 * row['share']:5.1f} % {row['times']:7.0f}"
        print(f"{row['dtype']:>9} {figures}  {row['operation']}")
    print(rows.line())


def spent_on(call: Callable[[], object], repeats: int, device: torch.device) -> list[Spent]:
    """Return what the operations, or on a GPU the kernels, of a call take of it, the largest first.

    Raises:
        RuntimeError: if the profiler saw none.
    """
    on_gpu = device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    # torch 2.11 warns of cycles, of which there is one, unless events are to outlast them.
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
    """Return the first of some operations, and the others as one."""
    others = spent[count:]
    if not others:
        return list(spent)
    together = Spent(f"{len(others)} others", sum(one.seconds for one in others), sum(one.times for one in others))
    return [*spent[:count], together]


if __name__ == "__main__":
    main()
