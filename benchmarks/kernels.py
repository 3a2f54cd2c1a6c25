"""Times our kernels for encoders, except attention's, and the plain operations that they replace, at a published shape.

They need a GPU, or TRITON_INTERPRET=1 on a CPU. "ratio" is the speed over that of plain operations, "apart" the largest
difference from them, relative to their largest value.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, layer_norm, linear, silu
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.latency import DTYPES
from benchmarks.random_model import ENCODERS
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import WARM_UPS, finished, times_in_turns
from models.config import ConformerConfig
from models.encoders import subsampling
from models.encoders.conformer import ConvolutionModule, FeedForward
from models.encoders.masking import valid_positions
from models.encoders.padding import Padding
from models.encoders.subsampling import Subsampling

Forms = dict[str, Callable[[], Tensor]]

_FRAMES_A_SECOND, _FEATURES_A_SECOND = 12.5, 100
_OPERATIONS = "operations"


@torch.no_grad()
def main() -> None:
    """Parse, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(ENCODERS), default="0.6b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of the longest clip; the shortest has half")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 240])
    parser.add_argument("--rounds", type=int, default=20, help="measured calls of each form")
    add_rows_option(parser)
    args = parser.parse_args()

    device, dtype = torch.device(args.device), DTYPES[args.dtype]
    about = {"shape": args.shape, "dtype": args.dtype, "seconds": args.seconds, "rounds": args.rounds}
    rows = Rows("kernels", about | describe(device), args.rows)
    parts = {
        "subsampling": _subsampling,
        "convolution": _convolution,
        "sum and norm": _sum_and_norm,
        "expansion": _expansion,
    }
    cells = ((batch, part) for batch in args.batch for part in parts)
    for batch, part in tqdm(rows.missing(cells), unit="part", disable=None):
        forms = parts[part](ENCODERS[args.shape], batch, args.seconds, device, dtype)
        wanted = forms[_OPERATIONS]()
        calls = {form: partial(finished, call, device) for form, call in forms.items()}
        times = times_in_turns(calls, args.rounds, WARM_UPS)
        found = []
        for form, call in forms.items():
            median = statistics.median(times[form])
            row = {"batch": batch, "part": part, "form": form, "median": median, "least": min(times[form])}
            row["ratio"] = statistics.median(times[_OPERATIONS]) / median
            found.append(row | {"apart": float((call() - wanted).abs().max() / wanted.abs().max())})
        rows.add((batch, part), *found)
    print(f"{'batch':>5} {'part':13} {'form':14} {'median ms':>10} {'least':>8} {'ratio':>6} {'apart':>8}")
    for row in rows:
        print(
            f"{row['batch']:5d} {row['part']:13} {row['form']:14} {1000 * row['median']:10.3f}"
            f" {1000 * row['least']:8.3f} {row['ratio']:6.2f} {row['apart']:8.1e}"
        )
    print(rows.line())


def _subsampling(
    config: ConformerConfig, batch: int, seconds: float, device: torch.device, dtype: torch.dtype
) -> Forms:
    """Return the forms of all subsampling but the projection."""
    from models.kernels.subsampling import halved_features, halved_images  # only a GPU has Triton

    module = Subsampling(config).eval()
    module.fold()
    module.to(device, dtype)
    frames = round(seconds * _FEATURES_A_SECOND)
    lengths = torch.linspace(frames, frames / 2, batch, device=device).long()
    features = torch.randn(batch, config.mels, frames, device=device, dtype=dtype)
    features = features.masked_fill(~valid_positions(lengths, frames)[:, None], 0.0)

    def silenced(stacked: Tensor) -> Tensor:
        return stacked * valid_positions(module.shortened(lengths), stacked.size(1))[:, :, None]

    def operations() -> Tensor:
        with patch.object(subsampling, "depthwise_halves_on", lambda *_: None):
            return silenced(module._stacked(features, lengths))  # noqa: SLF001  # needed only here

    def kernels() -> Tensor:
        return silenced(module._stacked_by((halved_features, halved_images), features, lengths))  # noqa: SLF001

    return {_OPERATIONS: operations, "kernels": kernels}


def _convolution(
    config: ConformerConfig, batch: int, seconds: float, device: torch.device, dtype: torch.dtype
) -> Forms:
    """Return the forms of gate, convolution and Swish."""
    from models.kernels.convolution import gated_convolution  # only a GPU has Triton

    module = ConvolutionModule(config).eval()
    module.fold()
    module.to(device, dtype)
    padding, halves = _padding(batch, seconds, device), _frames(2 * config.width, batch, seconds, device, dtype)
    weights, valid = (module.depthwise.weight, module.depthwise.bias), padding.valid[:, :, None]

    def operations() -> Tensor:
        return silu(module._convolved(glu(halves, dim=-1) * valid)) * valid  # noqa: SLF001

    def kernel() -> Tensor:
        rows = padding.starts, padding.lengths, padding.time
        return gated_convolution(halves, *rows, *weights, swish=True) * valid

    return {_OPERATIONS: operations, "kernel": kernel}


def _sum_and_norm(
    config: ConformerConfig, batch: int, seconds: float, device: torch.device, dtype: torch.dtype
) -> Forms:
    from models.kernels.residual_norm import residual_norm  # only a GPU has Triton

    before, change = (_frames(config.width, batch, seconds, device, dtype) for _ in range(2))
    norm = nn.LayerNorm(config.width).to(device, dtype)

    def operations() -> Tensor:
        return layer_norm(torch.add(before, change, alpha=0.5), (config.width,), norm.weight, norm.bias, norm.eps)

    def kernel() -> Tensor:
        return residual_norm(before, change, 0.5, norm.weight, norm.bias, norm.eps)[1]

    return {_OPERATIONS: operations, "kernel": kernel}


def _expansion(config: ConformerConfig, batch: int, seconds: float, device: torch.device, dtype: torch.dtype) -> Forms:
    """Return the forms of an expansion with Swish; on a GPU, float32 has no kernel."""
    from models.kernels.feed_forward import TILES, swish_expansion  # only a GPU has Triton

    module, frames = FeedForward(config).to(device, dtype), _frames(config.width, batch, seconds, device, dtype)
    layer = frames, module.expand.weight, module.expand.bias
    forms: Forms = {_OPERATIONS: lambda: silu(linear(*layer), inplace=True)}
    if dtype == torch.float32 and device.type == "cuda":
        return forms
    for tile in TILES:
        name = f"{tile.rows}x{tile.columns}x{tile.warps}x{tile.stages}"
        forms[name] = partial(swish_expansion, *layer, tile)
    return forms


def _padding(batch: int, seconds: float, device: torch.device) -> Padding:
    time = round(seconds * _FRAMES_A_SECOND)
    return Padding(torch.linspace(time, time / 2, batch, device=device).long(), time)


def _frames(width: int, batch: int, seconds: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.randn(batch, round(seconds * _FRAMES_A_SECOND), width, device=device, dtype=dtype)


if __name__ == "__main__":
    main()
