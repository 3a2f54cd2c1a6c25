"""The loss of a transducer, forwards and backwards, over random frames and predictions: seconds, and memory.

All clips have the same length; `--ragged` makes them 0.5 to 1 times as long, at random. NeMo's loss is measured in
turns with ours, if NeMo is installed (`make nemo-check` makes an environment that has it); for TDT, only on GPUs. It
gets the scores of all frames and labels of the batch from our joint at once. Several dtypes are measured in turns too;
`times` is how many times as fast each is as the first.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.environment import describe, process_bytes
from benchmarks.rows import Row, Rows, add_rows_option
from benchmarks.timing import times_in_turns
from models.heads.transducer import Joint
from training.losses.transducer import transducer_loss

_SECONDS_PER_FRAME = 0.08
_DURATIONS = {"rnnt": (), "tdt": (0, 1, 2, 3, 4)}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_MEGA = 1e6

Step = Callable[[], Tensor]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a clip, at 12.5 frames a second")
    parser.add_argument("--rate", type=float, default=4.0, help="labels a second")
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--width", type=int, default=640, help="width of the joint")
    parser.add_argument("--heads", nargs="+", choices=_DURATIONS, default=["rnnt", "tdt"])
    parser.add_argument("--dtype", choices=_DTYPES, nargs="+", default=["float32"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ragged", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    add_rows_option(parser)
    args = parser.parse_args()

    device = torch.device(args.device)
    options = {name: value for name, value in vars(args).items() if name not in ("rows", "clips", "heads", "device")}
    rows = Rows("losses", {**options, **describe(device)}, args.rows)
    print(
        f"{'head':>5} {'clips':>6} {'dtype':>8} {'engine':>7} {'seconds':>9} {'times':>6} {'to NeMo':>8} "
        f"{'peak MB':>9} {'all scores MB':>14}"
    )
    for head, clips in rows.missing([(head, clips) for head in args.heads for clips in args.clips]):
        cases = {dtype: _Case(args, head, clips, dtype, device) for dtype in args.dtype}
        rows.add((head, clips), *_measure(cases, args.repeats))
    for row in rows:
        ratio = f"{row['to_nemo']:.2f}" if row["to_nemo"] else ""
        print(
            f"{row['head']:>5} {row['clips']:>6} {row['dtype']:>8} {row['engine']:>7} {row['seconds']:>9.3f} "
            f"{row['times']:>6.2f} {ratio:>8} "
            f"{row['peak_mb']:>9.0f} {row['all_scores_mb']:>14.0f}"
        )
    print(rows.line())


class _Case:
    """A batch, and a joint."""

    def __init__(self, args: argparse.Namespace, head: str, clips: int, name: str, device: torch.device) -> None:
        random = torch.Generator().manual_seed(0)
        self.head, self.clips, self.device = head, clips, device
        dtype = _DTYPES[name]
        frames, labels = round(args.seconds / _SECONDS_PER_FRAME), round(args.seconds * args.rate)
        share = 0.5 + 0.5 * torch.rand(clips, generator=random) if args.ragged else torch.ones(clips)
        share /= share.max()  # NeMo needs a batch as long as its longest clip
        self.frames, self.labels = ((share * most).ceil().long() for most in (frames, labels))
        self.tokens = torch.randint(args.vocabulary, (clips, labels), generator=random).to(device)
        self.joint = Joint(1, 1, args.width, args.vocabulary, _DURATIONS[head]).to(device)
        self.encoded, self.predicted = (
            torch.randn(clips, size, args.width, generator=random).to(device, dtype).requires_grad_()
            for size in (frames, labels + 1)
        )
        self.all_scores = clips * frames * (labels + 1) * self.joint.output.out_features * dtype.itemsize

    def steno(self) -> Tensor:
        """Return our loss."""
        return transducer_loss(self.joint, self.encoded, self.predicted, self.frames, self.tokens, self.labels)

    def nemo(self) -> Step | None:
        """Return NeMo's loss, or None if it has none."""
        try:
            from nemo.collections.asr.parts.numba.rnnt_loss import rnnt_pytorch
        except ImportError:
            return None
        if self.head == "tdt" and self.device.type == "cpu":
            return None
        blank = self.joint.blank
        loss = (
            rnnt_pytorch.TDTLossNumba(blank, durations=list(self.joint.durations), reduction="sum")
            if self.head == "tdt"
            else rnnt_pytorch.RNNTLossNumba(blank, reduction="sum")
        )

        def step() -> Tensor:
            with torch.autocast(self.device.type, self.encoded.dtype, enabled=self.encoded.dtype != torch.float32):
                scores = self.joint(self.encoded[:, :, None], self.predicted[:, None])
            lengths = self.frames.to(self.device), self.labels.to(self.device)
            total: Tensor = loss(scores.float(), self.tokens, *lengths)
            return total.sum()

        return step


def _measure(cases: Mapping[str, _Case], repeats: int) -> list[Row]:
    """Return a row for each dtype and engine, all measured in turns."""
    calls = {}
    for dtype, case in cases.items():
        calls[f"Steno {dtype}"] = _learning(case, case.steno)
        if nemo := case.nemo():
            calls[f"NeMo {dtype}"] = _learning(case, nemo)
    times = times_in_turns(calls, repeats, warm_ups=1)
    first = next(iter(cases))
    rows = []
    for name, call in calls.items():
        engine, dtype = name.split()
        own, case = times[name], cases[dtype]
        to_nemo = [theirs / ours for theirs, ours in zip(times.get(f"NeMo {dtype}", []), own, strict=False)]
        rows.append(
            {
                "head": case.head,
                "clips": case.clips,
                "dtype": dtype,
                "engine": engine,
                "seconds": statistics.median(own),
                "times": statistics.median(
                    one / mine for one, mine in zip(times[f"{engine} {first}"], own, strict=True)
                ),
                "to_nemo": statistics.median(to_nemo) if to_nemo and engine != "NeMo" else None,
                "peak_mb": _peak(call, case.device) / _MEGA,
                "all_scores_mb": case.all_scores / _MEGA,
            }
        )
    return rows


def _learning(case: _Case, step: Step) -> Callable[[], object]:
    """Return a function that computes a loss and its gradients, which replace the previous ones."""

    def call() -> float:
        learned = case.encoded, case.predicted, *case.joint.output.parameters()
        for each in learned:
            each.grad = None
        loss = step()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        if case.device.type == "cuda":
            torch.cuda.synchronize(case.device)
        return loss.item()

    return call


def _peak(call: Callable[[], object], device: torch.device) -> float:
    """Return by how many bytes a call's peak exceeds the memory before it, in which are the last gradients."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        return torch.cuda.max_memory_allocated(device) - before
    # Resets the process's peak in Linux.
    Path("/proc/self/clear_refs").write_text("5")
    before = process_bytes("VmRSS")
    call()
    return max(0, process_bytes("VmHWM") - before)


if __name__ == "__main__":
    main()
