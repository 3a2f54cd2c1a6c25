"""RTFx of a whole set of utterances, by precision, decoder and batch budget: all audio over all time.

Lengths are drawn like those of read books: half of them under 6 s, 7 s on average, a few up to 35 s. `steno eval` is
for recordings: it reads files, and measures word error rate too. On a GPU a row also has the peak of its memory:
models, batches and states of searches together; with --idle it has the share of the time, from the first tenth to the
last, in which the GPU computes no kernel (benchmarks/idle.py), of one more pass over some batches.
"""

import argparse
import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.idle import idle_share, kernels_of
from benchmarks.latency import add_model_options, chosen_models, model_name
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import times_of
from models.graphs import side_stream

# A log-normal distribution of seconds, clipped at its ends.
_MEDIAN_SECONDS, _LOG_DEVIATION = 5.8, 0.65
_SHORTEST, _LONGEST = 1.3, 35.0
_PROFILED_BATCHES = 12


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    parser.add_argument("--decoders", nargs="+", help="default: all decoders of the model")
    parser.add_argument("--utterances", type=int, default=128)
    parser.add_argument("--batch-seconds", type=float, nargs="+", default=[60.0, 240.0], help="audio and padding")
    parser.add_argument("--repeats", type=int, default=3, help="measured passes over the set; the fastest counts")
    parser.add_argument("--one-stream", action="store_true", help="run searches and encoders in one CUDA stream")
    parser.add_argument("--idle", action="store_true", help="profile some batches on a GPU for its idle share")
    add_rows_option(parser)
    args = parser.parse_args()

    side_stream.HAS_STREAM = not args.one_stream
    seconds = utterance_seconds(args.utterances)
    models = chosen_models(args)
    model = next(iter(models.values()))
    about = {"model": model_name(args), "utterances": args.utterances, "audio_seconds": sum(seconds)}
    about |= {"repeats": args.repeats, "one_stream": args.one_stream}
    rows = Rows("offline", about | describe(model.device), args.rows)
    noise = _noise(seconds, model.sample_rate)
    on_gpu = model.device.type == "cuda"
    cells = itertools.product(args.dtypes, args.decoders or model.decoders, args.batch_seconds)
    for dtype, decoder, budget in tqdm(rows.missing(cells), unit="cell", disable=None):
        options = {"decoder": decoder, "batch_seconds": budget}
        call = partial(models[dtype].transcribe, noise, **options)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(model.device)
        rtfx = sum(seconds) / min(times_of(call, args.repeats, warm_ups=1))
        row = {"dtype": dtype, "decoder": decoder, "batch_seconds": budget, "rtfx": rtfx}
        if on_gpu:
            row["device_gb"] = torch.cuda.max_memory_allocated(model.device) / 1e9
        if on_gpu and args.idle:
            some = noise[: max(1, round(len(noise) * min(1.0, _PROFILED_BATCHES * budget / sum(seconds))))]
            row["idle"] = idle_share(kernels_of(partial(models[dtype].transcribe, some, **options)))
        rows.add((dtype, decoder, budget), row)
    print(f"{'dtype':>9} {'decoder':>8} {'budget s':>9} {'RTFx':>10}" + (f" {'GB':>6} {'idle':>6}" if on_gpu else ""))
    for row in rows:
        memory = f" {row['device_gb']:6.1f}" if on_gpu else ""
        if (idle := row.get("idle")) is not None:
            memory += f" {100 * idle:4.1f} %"
        print(f"{row['dtype']:>9} {row['decoder']:>8} {row['batch_seconds']:9.0f} {row['rtfx']:10.1f}{memory}")
    print(rows.line())


def utterance_seconds(count: int) -> list[float]:
    """Draw lengths like those of read speech."""
    random = np.random.default_rng(0)
    drawn = random.lognormal(np.log(_MEDIAN_SECONDS), _LOG_DEVIATION, count)
    lengths: list[float] = drawn.clip(_SHORTEST, _LONGEST).tolist()
    return lengths


def _noise(seconds: Sequence[float], rate: int) -> list[npt.NDArray[np.float32]]:
    random = np.random.default_rng(1)
    return [0.1 * random.standard_normal(int(length * rate), dtype=np.float32) for length in seconds]


if __name__ == "__main__":
    main()
