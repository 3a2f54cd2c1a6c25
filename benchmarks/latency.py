"""Latency and RTFx of a model by batch, length and precision: samples in, transcripts out, in one process.

The grid is NVIDIA's published one for Jasper: batches of 1 to 16 of 2.0, 7.0 and 16.7 s. Noise takes as long as speech
with CTC models and all encoders. A trained transducer finds few labels in noise, so its search looks faster than it is:
give a recording with --audio. Random models of published shapes find as many labels in noise as trained ones in speech.
"""

import argparse
import itertools
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.random_model import DURATIONS, ENCODERS, SHAPES, random_checkpoint
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import WARM_UPS, Latency, times_of
from models import Transcriber, load_model
from models.device.precision import Precision
from models.model import Model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    parser.add_argument("--decoder", help="default: the model's first")
    parser.add_argument("--audio", help="recording to repeat; noise when none is given")
    parser.add_argument("--seconds", type=float, nargs="+", default=[2.0, 7.0, 16.7])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--repeats", type=int, default=20, help=f"measured calls of each cell, after {WARM_UPS} others")
    add_rows_option(parser)
    args = parser.parse_args()

    models = chosen_models(args)
    model = next(iter(models.values()))
    about = {"model": model_name(args), "decoder": args.decoder or model.decoders[0]}
    about |= {"audio": args.audio, "repeats": args.repeats}
    rows = Rows("latency", about | describe(model.device), args.rows)
    longest = speech(args.audio, model.sample_rate, max(args.seconds))
    cells = itertools.product(args.dtypes, args.seconds, args.batch)
    for dtype, seconds, batch in tqdm(rows.missing(cells), unit="cell", disable=None):
        waveforms = longest[: int(seconds * model.sample_rate)].repeat(batch, 1)
        latency = _measure(models[dtype], waveforms, args.decoder, args.repeats)
        row = {"dtype": dtype, "batch": batch, "seconds": seconds, **latency.row()}
        rows.add((dtype, seconds, batch), row | {"rtfx": seconds * batch / latency.mean})
    print(f"{'dtype':>9} {'batch':>6} {'s':>6} {'p90 ms':>9} {'p95 ms':>9} {'p99 ms':>9} {'mean ms':>9} {'RTFx':>9}")
    for row in rows:
        times = " ".join(f"{1000 * row[key]:9.2f}" for key in ("p90", "p95", "p99", "mean"))
        print(f"{row['dtype']:>9} {row['batch']:6d} {row['seconds']:6.1f} {times} {row['rtfx']:9.1f}")
    print(rows.line())


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `chosen_models` reads."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="checkpoint")
    which.add_argument("--shape", choices=sorted(SHAPES), help="random model of this shape")
    parser.add_argument(
        "--transducer", choices=sorted(DURATIONS), default="tdt", help="transducer of a random Conformer"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", choices=get_args(Precision), nargs="+", default=["float32"])


def chosen_models(args: argparse.Namespace) -> dict[str, Transcriber]:
    """Return the model that the options name, in each of the dtypes."""
    return {dtype: _chosen_model(args, dtype) for dtype in args.dtypes}


def _chosen_model(args: argparse.Namespace, dtype: str) -> Transcriber:
    if args.model is not None:
        return load_model(args.model, device=args.device, dtype=dtype)
    checkpoint = random_checkpoint(args.shape, args.transducer, device=args.device)
    return Transcriber(Model(checkpoint, torch.device(args.device), dtype))


def model_name(args: argparse.Namespace) -> str:
    """Return the name of the model in results."""
    random = f"{args.shape} {args.transducer}" if args.shape in ENCODERS else args.shape
    return str(args.model or random)


def speech(path: str | None, rate: int, seconds: float) -> Tensor:
    """Return ``seconds`` of a recording, repeated if it is shorter, or of noise without one, [samples]."""
    samples = int(seconds * rate)
    if path is None:
        return 0.1 * torch.randn(samples, generator=torch.Generator().manual_seed(0))
    # Imported here, because a GPU machine may have neither soundfile nor soxr.
    from audio.decode import decode
    from audio.limits import AudioLimits

    with Path(path).open("rb") as file:
        recording = torch.from_numpy(decode(file, rate=rate, limits=AudioLimits()).samples)
    return recording.repeat(-(-samples // len(recording)))[:samples]


def _measure(model: Transcriber, waveforms: Tensor, decoder: str | None, repeats: int) -> Latency:
    waveforms, lengths = model.model.batch(list(waveforms.numpy()))
    model.model.prepare(*waveforms.shape)
    # A call ends with the copy of the tokens to the host.
    return Latency.of(
        times_of(lambda: model.recognize_batch(waveforms, lengths, decoder=decoder).transcripts(), repeats)
    )


if __name__ == "__main__":
    main()
