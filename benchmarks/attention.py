"""Times one layer of relative self-attention: with plain operations, with FlexAttention and with our kernel.

Plain operations write scores by distance, the bias of PyTorch's attention. FlexAttention's kernel reads such scores,
too; ours (models/kernels/attention.py) needs none. --launches adds ours once for each launch of a list, and names it by
the fields of ``Launch``. Both kernels need a GPU; --launches also runs on a CPU, with TRITON_INTERPRET=1 and NumPy
before 2.4. "apart" is the largest difference from plain operations, relative to their largest value.
"""

import argparse
import itertools
import os
import statistics
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.latency import DTYPES
from benchmarks.random_model import ENCODERS
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import WARM_UPS, finished, times_in_turns
from models.encoders.attention import RelativeAttention, frames_within_reach, relative_positions
from models.encoders.padding import Padding

Attend = Callable[[], Tensor]

_FRAMES_A_SECOND = 12.5
# Arguments of ``Launch``. The interpreter ignores warps and stages.
_LAUNCHES = [
    (tile, keys, warps, 2, rereads)
    for tile, keys in ((32, 32), (64, 32), (64, 64))
    for warps in (4, 8)
    for rereads in (False, True)
]
if os.environ.get("TRITON_INTERPRET") == "1":
    _LAUNCHES = [(16, 16, 8, 1, False), (32, 16, 8, 1, True)]


@torch.no_grad()
def main() -> None:
    """Parse, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(ENCODERS), default="0.6b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--seconds", type=float, nargs="+", default=[8.0, 16.0, 40.0])
    parser.add_argument("--batch-seconds", type=float, default=480.0, help="audio in a batch")
    parser.add_argument("--rounds", type=int, default=20, help="measured calls of each form")
    parser.add_argument(
        "--launches",
        action="store_true",
        help="also measure our kernel with each launch of a list that the device can run",
    )
    add_rows_option(parser)
    args = parser.parse_args()

    device, dtype = torch.device(args.device), DTYPES[args.dtype]
    about = {"shape": args.shape, "dtype": args.dtype, "rounds": args.rounds, "launches": args.launches}
    rows = Rows("attention", about | describe(device), args.rows)
    config = ENCODERS[args.shape]
    module = RelativeAttention(config).eval()
    module.fold()
    module.to(device, dtype)
    cells = ((seconds, max(1, int(args.batch_seconds / seconds))) for seconds in args.seconds)
    for seconds, batch in tqdm(rows.missing(cells), unit="length", disable=None):
        time = round(seconds * _FRAMES_A_SECOND)
        frames = torch.randn(batch, time, config.width, device=device, dtype=dtype)
        padding = Padding(torch.linspace(time, time / 2, batch, device=device).long(), time)
        positions = relative_positions(frames_within_reach(time, None), config.width, device).to(dtype)
        inputs = (module, frames, positions, padding)
        forms: dict[str, Attend] = {"operations": partial(RelativeAttention.attended, *inputs)}
        if device.type == "cuda":
            forms["flex"] = partial(_flex, *inputs)
            forms["kernel"] = next(_launches(*inputs))[1]
        if args.launches:
            forms |= dict(itertools.islice(_launches(*inputs), 1, None))
        wanted = forms["operations"]()
        forms = {form: attend for form, attend in forms.items() if _runs(form, attend)}
        calls = {form: partial(finished, attend, device) for form, attend in forms.items()}
        times = times_in_turns(calls, args.rounds, WARM_UPS)
        found = []
        for form, attend in forms.items():
            apart = ((attend() - wanted) * padding.valid[:, :, None]).abs().max() / wanted.abs().max()
            row = {"seconds": seconds, "batch": batch, "form": form, "median": statistics.median(times[form])}
            found.append(row | {"least": min(times[form]), "apart": float(apart)})
        rows.add((seconds, batch), *found)
    print(f"{'seconds':>8} {'batch':>6} {'form':15} {'median ms':>10} {'least':>8} {'apart':>9}")
    for row in rows:
        print(
            f"{row['seconds']:8.1f} {row['batch']:6d} {row['form']:15} {1000 * row['median']:10.3f}"
            f" {1000 * row['least']:8.3f} {row['apart']:9.1e}"
        )
    print(rows.line())


def _launches(
    module: RelativeAttention, normed: Tensor, positions: Tensor, padding: Padding
) -> Iterator[tuple[str, Attend]]:
    """Yield a name and our kernel, as it is launched in service and for each of ``_LAUNCHES``."""
    from models.kernels.attention import Launch, relative_attention  # PyTorch for CPUs lacks Triton

    merged = module.merged
    assert merged is not None
    biases, rows = (module.content_bias, module.position_bias), (padding.starts, padding.lengths)

    def attend(launch: Launch | None) -> Tensor:
        table = module._table_for(positions)  # noqa: SLF001
        attended = relative_attention(merged(normed), table, *biases, *rows, padding.time, None, launch)
        projected: Tensor = module.output(attended)
        return projected

    yield "kernel", partial(attend, None)
    for launch in itertools.starmap(Launch, _LAUNCHES):
        yield "x".join(map(str, launch)), partial(attend, launch)


def _runs(form: str, attend: Attend) -> bool:
    """Return whether a form runs: a device may have no room for a launch, or no compiler for FlexAttention."""
    try:
        attend()
    except Exception as error:  # noqa: BLE001  # a compiler has many kinds of errors
        tqdm.write(f"{form} does not run here: {error}")
        return False
    return True


_compiled_flex = torch.compile(flex_attention, dynamic=False)


def _flex(module: RelativeAttention, normed: Tensor, positions: Tensor, padding: Padding) -> Tensor:
    assert module.merged is not None
    heads, farthest = module.heads, positions.size(0) // 2
    query, key, value = (torch.unflatten(part, 2, (heads, -1)) for part in module.merged(normed).chunk(3, dim=2))
    table = torch.unflatten(module.position(positions), 1, (heads, -1)).permute(1, 2, 0)
    scale = query.size(-1) ** -0.5
    by_distance = scale * ((query + module.position_bias).transpose(1, 2) @ table)

    def with_distance(score: Tensor, row: Tensor, head: Tensor, asked: Tensor, seen: Tensor) -> Tensor:
        score = score + by_distance[row, head, asked, farthest - asked + seen]
        return torch.where(padding.valid[row, seen], score, -float("inf"))

    with_content = (query + module.content_bias).transpose(1, 2)
    attended = _compiled_flex(
        with_content, key.transpose(1, 2), value.transpose(1, 2), score_mod=with_distance, scale=scale
    )
    projected: Tensor = module.output(attended.transpose(1, 2).flatten(2))
    return projected


if __name__ == "__main__":
    main()
