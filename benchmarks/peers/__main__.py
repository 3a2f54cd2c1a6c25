"""RTFx of Steno beside NeMo, transformers, onnxruntime, onnx-asr and sherpa-onnx: same random weights, same noise.

All run in turns in one process. `make peers` installs the others, and runs this. Those that are not installed are
listed first, and left out; on a GPU, so are those that run on onnxruntime. Ratios are to the first engine of each head:
NeMo if it is there.
"""

import argparse
import importlib.util
import itertools
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
from benchmarks.latency import DTYPES
from benchmarks.peers import nemo, onnx, onnx_asr, sherpa, steno, transformers
from benchmarks.peers.engine import Engine
from benchmarks.peers.peak import encoder_operations, peaks
from benchmarks.random_model import DURATIONS, ENCODERS, random_checkpoint
from benchmarks.rows import Rows, add_rows_option
from models.checkpoint import Checkpoint
from models.device.cpu import multiplies_eight_bits_exactly

_DTYPES = DTYPES | {"int8": torch.int8}
_PEERS = ("nemo", "transformers", "onnxruntime", "onnx_asr", "sherpa_onnx")


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(ENCODERS), default="110m")
    parser.add_argument("--transducer", choices=sorted(DURATIONS), default="tdt")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a clip")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--dtypes", choices=sorted(_DTYPES), nargs="+", default=["bfloat16", "float32", "int8"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engines", choices=(*_PEERS, "steno"), nargs="+", default=[*_PEERS, "steno"])
    parser.add_argument("--rounds", type=int, default=7, help="measured turns of every engine")
    add_rows_option(parser)
    args = parser.parse_args()

    device = torch.device(args.device)
    dtypes = [_DTYPES[name] for name in args.dtypes if name != "int8" or _has_int8(device)]
    peers = _installed(device)
    eight_bits = [name == "int8" for name in args.dtypes if name not in ("bfloat16", "float16")]
    options = ("shape", "transducer", "seconds", "dtypes", "engines", "rounds")
    about = {option: getattr(args, option) for option in options}
    rows = Rows("peers", about | describe(device), args.rows)
    checkpoint = random_checkpoint(args.shape, args.transducer, device=args.device)
    for (batch,) in rows.missing((batch,) for batch in args.batch):
        waveforms = 0.1 * torch.randn(batch, int(args.seconds * checkpoint.config.features.sample_rate))
        lengths = torch.full((batch,), waveforms.size(1))
        engines = _engines(peers, checkpoint, dtypes, eight_bits, device, waveforms, lengths)
        engines = [engine for engine in engines if engine.library in args.engines]
        rows.add((batch,), *_compare(engines, waveforms, lengths, args.seconds * batch, args.rounds))
    fastest = peaks(checkpoint.config, device)
    needed = encoder_operations(checkpoint.config, args.seconds) / args.seconds
    for dtype, peaks_of in fastest.items():
        for name, peak in peaks_of.items():
            print(f"feed-forward product, {dtype}, {name}: {peak / 1e9:.0f} G operations/s at best")
        print(f"RTFx of an encoder at that speed, {dtype}: {max(peaks_of.values()) / needed:.0f}")
    print(
        f"{'batch':>5} {'head':>5} {'engine':24} {'RTFx':>8} {'ratio':>8} {'range':>13} {'search':>8} {'of peak':>7}"
        f" {'tokens':>7}"
    )
    for row in rows:
        ratios = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
        search = f"{row['search_ratio']:.2f}" if row["search_ratio"] else ""
        best = fastest.get(row["engine"].split()[-1])  # None for a dtype without a peak
        row["peak_share"] = row["rtfx"] * needed / max(best.values()) if best else None
        share = f"{row['peak_share']:.0%}" if best else ""
        print(
            f"{row['batch']:5d} {row['head']:>5} {row['engine']:24} {row['rtfx']:8.1f} {row['ratio']:8.2f} {ratios:>13}"
            f" {search:>8} {share:>7} {row['tokens_equal']:7.1%}"
        )
    limits = {"peaks": fastest, "encoder_flops_a_second": needed}
    print(json.dumps(json.loads(rows.line()) | limits))


def _has_int8(device: torch.device) -> bool:
    """Return whether Steno runs in 8 bits here; print a line if the processor cannot."""
    if device.type == "cpu" and not multiplies_eight_bits_exactly():
        print("int8 of Steno is left out: this processor has no products in 8 bits (VNNI)")
        return False
    return device.type == "cpu"


def _installed(device: torch.device) -> set[str]:
    """Return the peers that can run, and print what is not installed."""
    found = {library for library in _PEERS if importlib.util.find_spec(library) is not None}
    for library in sorted(set(_PEERS) - found):
        print(f"{library} is not installed here, and left out")
    if "nemo" not in found:
        print("onnxruntime, onnx_asr and sherpa_onnx are left out: they run what nemo exports")
    return found if device.type == "cpu" and "nemo" in found else found & {"nemo", "transformers"}


def _engines(
    peers: set[str],
    checkpoint: Checkpoint,
    dtypes: Sequence[torch.dtype],
    eight_bits: Sequence[bool],
    device: torch.device,
    waveforms: Tensor,
    lengths: Tensor,
) -> list[Engine]:
    """Return all engines; the first of each head is its reference."""
    engines: list[Engine] = []
    if "nemo" in peers:
        # On a CPU, NeMo runs in float32 only.
        for dtype in dtypes if device.type == "cuda" else (torch.float32,):
            model = nemo.nemo_model(checkpoint, dtype, device)
            engines += nemo.engines(model, waveforms, lengths)
        with tempfile.TemporaryDirectory() as folder:
            if eight_bits and peers & {"onnxruntime", "onnx_asr", "sherpa_onnx"}:
                nemo.write_onnx(model, Path(folder))
            engines += _of_exports(peers, Path(folder), checkpoint, eight_bits)
    for dtype in dtypes:
        if dtype is not torch.int8 and "transformers" in peers:
            engines += transformers.engines(checkpoint, dtype, device)
    for dtype in dtypes:
        engines += steno.engines(checkpoint, dtype, device, waveforms)
    return engines


def _of_exports(peers: set[str], folder: Path, checkpoint: Checkpoint, eight_bits: Sequence[bool]) -> list[Engine]:
    """Return engines that run NeMo's exports: in 8 bits if ``eight_bits`` has True, in float32 if False."""
    config, threads = checkpoint.config, torch.get_num_threads()
    assert config.transducer
    heads = ("ctc", "tdt" if config.transducer.durations else "rnnt")
    engines = []
    if "onnxruntime" in peers and False in eight_bits:
        engines.append(onnx.engine(folder / nemo.CTC_FILE, config, threads))
    if "sherpa_onnx" in peers and False in eight_bits:
        engines.append(sherpa.engine(folder, config, threads))
    if "onnx_asr" in peers:
        for rounded, head in itertools.product(eight_bits, heads):
            engines.append(onnx_asr.engine(folder, config, head, threads, eight_bits=rounded))
    return engines


def _compare(
    engines: Sequence[Engine], waveforms: Tensor, lengths: Tensor, audio_seconds: float, rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each engine, which is measured once a round; ratios are within a round.

    An unmeasured call precedes each measured one, as in service: it allocates memory, and its weights are in the
    caches as far as they fit.
    """
    tokens_of = {id(engine): engine.transcribe(waveforms, lengths) for engine in engines}
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
        reference = next(one for one in engines if one.head == engine.head)
        ratios = _ratios(whole[id(reference)], whole[id(engine)])
        searches = _ratios(search[id(reference)], search[id(engine)]) if engine.search and reference.search else None
        rows.append(
            {
                "batch": len(waveforms),
                "head": engine.head,
                "engine": engine.name,
                "reference": reference.name,
                "rtfx": audio_seconds / statistics.median(whole[id(engine)]),
                "ratio": statistics.median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
                "search_ratio": statistics.median(searches) if searches else None,
                "tokens_equal": _equal(tokens_of[id(engine)], tokens_of[id(reference)]),
            }
        )
    return rows


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _ratios(reference: Sequence[float], measured: Sequence[float]) -> list[float]:
    return [base / seconds for base, seconds in zip(reference, measured, strict=True)]


def _equal(tokens: Sequence[list[int]], reference: Sequence[list[int]]) -> float:
    """Return the share of clips with the same tokens."""
    return sum(one == other for one, other in zip(tokens, reference, strict=True)) / len(reference)


if __name__ == "__main__":
    main()
