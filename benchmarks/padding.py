"""The cost of padding: batches with equally many utterances and seconds, whose lengths differ more and more."""

import argparse
import statistics
from functools import partial

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.latency import add_model_options, chosen_models, model_name, speech
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import WARM_UPS, times_in_turns
from models import Transcriber, Transcript

# With more, the shortest utterance would have a negative length.
_MOST = 0.5


def main() -> None:
    """Parse, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    parser.add_argument("--decoder", help="default: the model's first")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=7.0, help="mean length")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.1, 0.2, 0.4], help=f"shares of padding, up to {_MOST}"
    )
    parser.add_argument("--rounds", type=int, default=9, help="measured turns; medians count")
    add_rows_option(parser)
    args = parser.parse_args()
    if args.batch < 2 or not all(0 < share <= _MOST for share in args.shares):
        parser.error(f"--batch must be 2 or more, and --shares above 0 and up to {_MOST}")

    models = chosen_models(args)
    model = next(iter(models.values()))
    about = {"model": model_name(args), "decoder": args.decoder or model.decoders[0]}
    about |= {option: getattr(args, option) for option in ("batch", "seconds", "shares", "rounds")}
    rows = Rows("padding", about | describe(model.device), args.rows)
    for (dtype,) in tqdm(rows.missing((dtype,) for dtype in args.dtypes), unit="dtype", disable=None):
        calls = {}
        for share in (0.0, *args.shares):
            waveforms, lengths = _batch(models[dtype], args.batch, args.seconds, share)
            calls[str(share)] = partial(_transcribe, models[dtype], waveforms, lengths, args.decoder)
        times = times_in_turns(calls, args.rounds, WARM_UPS)
        found = []
        for share, taken in times.items():
            slower = [one / none for one, none in zip(taken, times["0.0"], strict=True)]
            row = {"dtype": dtype, "padding_share": float(share), "time_to_none": statistics.median(slower)}
            found.append(row | {"rtfx": args.batch * args.seconds / statistics.median(taken)})
        rows.add((dtype,), *found)
    print(f"{'dtype':>9} {'padding %':>10} {'RTFx':>9} {'time to none':>13}")
    for row in rows:
        print(f"{row['dtype']:>9} {100 * row['padding_share']:10.0f} {row['rtfx']:9.1f} {row['time_to_none']:13.3f}")
    print(rows.line())


def _batch(model: Transcriber, batch: int, seconds: float, share: float) -> tuple[Tensor, Tensor]:
    """Return utterances of noise, whose lengths spread evenly around a mean; the model is prepared for them."""
    longest = seconds / (1 - share)
    samples = (torch.linspace(2 * seconds - longest, longest, batch) * model.sample_rate).long().tolist()
    noise = speech(None, model.sample_rate, longest + 1)
    waveforms, lengths = model.model.batch([noise[:length].numpy() for length in samples])
    model.model.prepare(*waveforms.shape)
    return waveforms, lengths


def _transcribe(model: Transcriber, waveforms: Tensor, lengths: Tensor, decoder: str | None) -> list[Transcript]:
    return model.recognize_batch(waveforms, lengths, decoder=decoder).transcripts()


if __name__ == "__main__":
    main()
