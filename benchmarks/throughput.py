"""RTFx and latency of a model by batch and length: samples in, hypotheses out, in one process.

Noise is as good as speech for a CTC model and for every encoder; a trained transducer says little on it, so its search
is under-measured: give a recording with --audio to measure one honestly. A random model of a published shape says of
noise what a trained one says of speech.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from benchmarks.environment import describe
from benchmarks.random_model import DURATIONS, ENCODERS, random_checkpoint
from models import Model, load_model

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="checkpoint")
    which.add_argument("--shape", choices=sorted(ENCODERS), help="random model of this shape")
    parser.add_argument("--transducer", choices=sorted(DURATIONS), default="tdt", help="of a random model")
    parser.add_argument("--decoder", help="instead of the model's first")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=sorted(_DTYPES), default="float32")
    parser.add_argument("--audio", help="recording to repeat; noise when none is given")
    parser.add_argument("--seconds", type=float, nargs="+", default=[2.0, 8.0, 30.0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=5, help="measured runs of each shape; the median counts")
    args = parser.parse_args()

    model = _model(args.model, args.shape, args.transducer, args.device, _DTYPES[args.dtype])
    speech = _speech(args.audio, model.sample_rate, max(args.seconds))
    print(f"{'seconds':>8} {'batch':>6} {'median ms':>10} {'best ms':>9} {'RTFx':>8}")
    rows = []
    for seconds in args.seconds:
        waveform = speech[: int(seconds * model.sample_rate)]
        for batch in args.batch:
            times = _measure(model, waveform.repeat(batch, 1), args.decoder, args.repeats)
            median, best = times[len(times) // 2], times[0]
            rows.append({"seconds": seconds, "batch": batch, "median_s": median, "best_s": best})
            print(f"{seconds:8.1f} {batch:6d} {1000 * median:10.1f} {1000 * best:9.1f} {seconds * batch / median:8.1f}")
    about = {"model": args.model or args.shape, "dtype": args.dtype, "decoder": args.decoder or model.decoders[0]}
    print(json.dumps({"benchmark": "throughput", **about, **describe(model.device), "rows": rows}))


def _model(path: str | None, shape: str, transducer: str, device: str, dtype: torch.dtype) -> Model:
    if path is not None:
        return load_model(path, device=device, dtype=dtype)
    return Model(random_checkpoint(shape, transducer, device=device), torch.device(device), dtype)


def _speech(path: str | None, rate: int, seconds: float) -> torch.Tensor:
    samples = int(seconds * rate)
    if path is None:
        return 0.1 * torch.randn(samples, generator=torch.Generator().manual_seed(0))
    # Here, not above: a GPU machine may have neither soundfile nor soxr.
    from audio.decode import decode
    from audio.limits import AudioLimits

    with Path(path).open("rb") as file:
        recording = torch.from_numpy(decode(file, rate=rate, limits=AudioLimits()).samples)
    return recording.repeat(-(-samples // len(recording)))[:samples]


def _measure(model: Model, waveforms: torch.Tensor, decoder: str | None, repeats: int) -> list[float]:
    """Seconds of each run, ascending; one unmeasured run goes first."""
    lengths = torch.full((len(waveforms),), waveforms.shape[1])
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        model.transcribe_batch(waveforms, lengths, decoder=decoder)  # ends with the copy of the hypotheses to the host
        times.append(time.perf_counter() - began)
    return sorted(times[1:])


if __name__ == "__main__":
    main()
