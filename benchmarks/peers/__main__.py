"""Ratios to NeMo, transformers and onnxruntime: same random weights, same noise, in turns in one process.

Needs an environment that has them: `make peers`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.latency import OF_MODELS
from benchmarks.peers import nemo, onnx, steno, transformers
from benchmarks.peers.engine import Engine
from benchmarks.peers.peak import encoder_operations, peaks
from benchmarks.random_model import DURATIONS, ENCODERS, random_checkpoint
from models.checkpoint import Checkpoint

_REFERENCE = "nemo float32"


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(ENCODERS), default="110m")
    parser.add_argument("--transducer", choices=sorted(DURATIONS), default="tdt")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a clip")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--dtypes", choices=sorted(OF_MODELS), nargs="+", default=sorted(OF_MODELS))
    parser.add_argument("--rounds", type=int, default=7, help="measured turns of every engine")
    args = parser.parse_args()

    machine = describe(torch.device("cpu"))
    checkpoint = random_checkpoint(args.shape, args.transducer)
    rows = []
    for batch in args.batch:
        waveforms = 0.1 * torch.randn(batch, int(args.seconds * checkpoint.config.features.sample_rate))
        lengths = torch.full((batch,), waveforms.size(1))
        engines = _engines(checkpoint, [OF_MODELS[name] for name in args.dtypes], waveforms, lengths)
        rows += _compare(engines, waveforms, lengths, args.seconds * batch, args.rounds)
    fastest = peaks(checkpoint.config)
    needed = encoder_operations(checkpoint.config, args.seconds) / args.seconds
    for dtype, peaks_of in fastest.items():
        for name, peak in peaks_of.items():
            print(f"products of 1000 frames, {dtype}, {name}: {peak / 1e9:.0f} G operations/s at best")
        print(f"an encoder of nothing but such products: RTFx {max(peaks_of.values()) / needed:.0f}")
    print(
        f"{'batch':>5} {'head':>5} {'engine':24} {'RTFx':>8} {'to NeMo':>8} {'range':>13} {'search':>8} {'of peak':>7}"
        f" {'tokens':>7}"
    )
    for row in rows:
        ratios = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
        search = f"{row['search_ratio']:.2f}" if row["search_ratio"] else ""
        row["peak_share"] = row["rtfx"] * needed / max(fastest[row["engine"].split()[-1]].values())
        print(
            f"{row['batch']:5d} {row['head']:>5} {row['engine']:24} {row['rtfx']:8.1f} {row['ratio']:8.2f} {ratios:>13}"
            f" {search:>8} {row['peak_share']:7.0%} {row['tokens_equal']:7.1%}"
        )
    about = {"shape": args.shape, "seconds": args.seconds, "rounds": args.rounds}
    limits = {"peaks": fastest, "encoder_flops_a_second": needed}
    print(json.dumps({"benchmark": "peers", **about, **machine, **limits, "rows": rows}))


def _engines(checkpoint: Checkpoint, dtypes: Sequence[torch.dtype], waveforms: Tensor, lengths: Tensor) -> list[Engine]:
    model = nemo.nemo_model(checkpoint)
    engines = nemo.engines(model, waveforms, lengths)
    with tempfile.TemporaryDirectory() as folder:
        path = nemo.onnx_file(model, Path(folder))
        engines.append(onnx.engine(path, checkpoint.config, torch.get_num_threads()))
    for dtype in dtypes:
        if dtype is not torch.int8:
            engines.append(transformers.engine(checkpoint, dtype))
        engines += steno.engines(checkpoint, dtype, waveforms)
    return engines


def _compare(
    engines: Sequence[Engine], waveforms: Tensor, lengths: Tensor, audio_seconds: float, rounds: int
) -> list[dict[str, Any]]:
    """Measure every engine once a round, after an unmeasured round; ratios are within a round.

    Before every measured call stands one that is not, because an engine in service follows itself: its weights are in
    the caches as far as they fit, and the memory it used last is the memory it uses next.
    """
    said = {id(engine): engine.transcribe(waveforms, lengths) for engine in engines}
    whole: dict[int, list[float]] = {id(engine): [] for engine in engines}
    search: dict[int, list[float]] = {id(engine): [] for engine in engines if engine.search}
    for _ in tqdm(range(rounds), unit="round", disable=None):
        for engine in engines:
            engine.transcribe(waveforms, lengths)
            whole[id(engine)].append(_seconds(lambda engine=engine: engine.transcribe(waveforms, lengths)))  # type: ignore[misc]
            if engine.search:
                search[id(engine)].append(_seconds(engine.search))
    rows = []
    for engine in engines:
        reference = next(one for one in engines if one.name == _REFERENCE and one.head == engine.head)
        ratios = _ratios(whole[id(reference)], whole[id(engine)])
        searches = _ratios(search[id(reference)], search[id(engine)]) if engine.search else None
        rows.append(
            {
                "batch": len(waveforms),
                "head": engine.head,
                "engine": engine.name,
                "rtfx": audio_seconds / statistics.median(whole[id(engine)]),
                "ratio": statistics.median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
                "search_ratio": statistics.median(searches) if searches else None,
                "tokens_equal": _equal(said[id(engine)], said[id(reference)]),
            }
        )
    return rows


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _ratios(reference: Sequence[float], measured: Sequence[float]) -> list[float]:
    return [theirs / ours for theirs, ours in zip(reference, measured, strict=True)]


def _equal(tokens: Sequence[list[int]], reference: Sequence[list[int]]) -> float:
    """Return the share of clips with the same tokens."""
    return sum(one == other for one, other in zip(tokens, reference, strict=True)) / len(reference)


if __name__ == "__main__":
    main()
