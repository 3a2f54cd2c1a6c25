"""Forms of the transducer's search over the same encoded frames: label looping, flat, look-ahead, graphs of look-ahead.

Graphs of a GPU are "replayed" 16 steps at a time, or "looped" 4 steps at a time by the GPU itself, each in plain
operations and in our kernels ("fused"). On a CPU, "replayed" does the same 16 steps without a graph. The last form is
also measured with other windows ("8 ahead"). The encoder's time is not included. Weights are random, for four labels a
second (random_model).
"""

import argparse
import itertools
import statistics
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.label_looping import label_looping
from benchmarks.latency import DTYPES
from benchmarks.random_model import DURATIONS, ENCODERS, random_checkpoint
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import times_in_turns
from models.features import LogMelFeatures
from models.network import Network
from models.search.flat import flat
from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.look_ahead import look_ahead
from models.search.result import FetchedResult, SearchResult


@torch.no_grad()
def main() -> None:
    """Parse, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(ENCODERS), default="110m")
    parser.add_argument("--transducer", choices=sorted(DURATIONS), nargs="+", default=sorted(DURATIONS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--windows", type=int, nargs="*", default=[], help="further windows: frames that a step scores")
    parser.add_argument("--rounds", type=int, default=7, help="measured turns; medians count, ratios are within a turn")
    add_rows_option(parser)
    args = parser.parse_args()

    device = torch.device(args.device)
    about = {"shape": args.shape, "dtype": args.dtype, "clip_seconds": args.seconds}
    about |= {"windows": args.windows, "rounds": args.rounds}
    rows = Rows("search", about | describe(device), args.rows)
    for transducer in args.transducer:
        checkpoint = random_checkpoint(args.shape, transducer, device=args.device)
        network = Network(checkpoint.config).eval()
        network.load_state_dict(checkpoint.state)
        network.fold()
        network.to(device, DTYPES[args.dtype])
        if device.type == "cpu":
            network.pack(DTYPES[args.dtype])
        assert checkpoint.config.transducer
        cells = rows.missing((transducer, batch) for batch in args.batch)
        for _, batch in tqdm(cells, unit="batch", desc=transducer, disable=None):
            noise = 0.1 * torch.randn(batch, int(args.seconds * checkpoint.config.features.sample_rate), device=device)
            lengths = torch.full((batch,), noise.size(1), device=device)
            features, frames = LogMelFeatures(checkpoint.config.features).to(device)(noise, lengths)
            encoded, frames = network.encoder(features.to(DTYPES[args.dtype]), frames)
            forms = _forms(network, checkpoint.config.transducer.max_symbols, encoded, frames, args.windows)
            searches = {form: partial(_until_found, search) for form, search in forms.items()}
            times = times_in_turns(searches, args.rounds, warm_ups=1)
            reference = times["label looping"]
            found = []
            for form, measured in times.items():
                ratios = [theirs / ours for theirs, ours in zip(reference, measured, strict=True)]
                row = {"transducer": transducer, "batch": batch, "form": form, "ratio": statistics.median(ratios)}
                found.append(row | {"seconds": statistics.median(measured)})
            rows.add((transducer, batch), *found)
    print(f"{'search':>6} {'batch':>6} {'form':24} {'median ms':>10} {'to label looping':>17}")
    for row in rows:
        print(
            f"{row['transducer']:>6} {row['batch']:6d} {row['form']:24} {1000 * row['seconds']:10.1f}"
            f" {row['ratio']:17.2f}"
        )
    print(rows.line())


def _forms(
    network: Network, max_symbols: int, encoded: Tensor, frames: Tensor, windows: Sequence[int]
) -> dict[str, Callable[[], SearchResult | FetchedResult]]:
    """Return the forms of the search that this device has, by name."""
    assert network.predictor
    assert network.joint
    network_parts = (network.predictor, network.joint, max_symbols)
    plain = {"label looping": label_looping, "flat": flat, "look-ahead": look_ahead}
    forms: dict[str, Callable[[], SearchResult | FetchedResult]] = {
        form: partial(search, encoded, frames, *network_parts) for form, search in plain.items()
    }
    on_gpu = encoded.is_cuda
    for fused, loops in itertools.product((False, True), repeat=2) if on_gpu else [(False, False)]:
        driver = GraphedLookAhead(*network_parts, fused=fused, loops=loops)
        form = f"{'fused, ' if fused else ''}{'looped' if loops else 'replayed'}"
        forms[form] = partial(driver.search, encoded, frames)
    for window in windows:
        driver = GraphedLookAhead(*network_parts, fused=on_gpu, loops=on_gpu, window=window)
        forms[f"{form}, {window} ahead"] = partial(driver.search, encoded, frames)
    return forms


def _until_found(search: Callable[[], SearchResult | FetchedResult]) -> None:
    """Search, and wait for the result on the host."""
    found = search()
    (found.fetched() if isinstance(found, SearchResult) else found).wait()


if __name__ == "__main__":
    main()
