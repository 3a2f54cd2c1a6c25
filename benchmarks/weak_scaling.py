"""Weak scaling of training steps: as many batches as processes, each process on a core or a GPU of its own.

    python -m benchmarks weak_scaling --ranks 1 2 --recipe RECIPE --shape 110m --batch 2 --seconds 4

Runs `benchmarks training` under torchrun with each number of processes, in turns. It gets all options that are not
listed here; they may name one batch, one length and one precision. Prints the clips a second, how many times those of
the first number of processes they are, and that over the growth in processes. If there are more processes than cores,
they share cores, which says nothing about scaling.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.environment import describe


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="numbers of processes")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each number; the median counts")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=Path, help="where to keep the JSON line as well")
    args, others = parser.parse_known_args()

    speeds: dict[int, list[float]] = {ranks: [] for ranks in args.ranks}
    for ranks in tqdm(args.ranks * args.rounds, unit="run", disable=None):
        speeds[ranks].append(_clips_a_second(ranks, args.device, others))
    cores = len(os.sched_getaffinity(0))
    rows = []
    print(f"{'ranks':>5} {'clips/s':>9} {'lowest':>9} {'highest':>9} {'times':>6} {'of each':>8}")
    for ranks, found in speeds.items():
        times = statistics.median(own / first for own, first in zip(found, speeds[args.ranks[0]], strict=True))
        row = {"ranks": ranks, "clips_a_second": found, "times": times, "efficiency": times * args.ranks[0] / ranks}
        rows.append(row)
        print(
            f"{ranks:>5} {statistics.median(found):>9.2f} {min(found):>9.2f} {max(found):>9.2f} {times:>6.2f} "
            f"{row['efficiency']:>8.0%}" + "  more processes than cores" * (args.device == "cpu" and ranks > cores)
        )
    about = {"cores": cores, "options": others, "load": os.getloadavg(), **describe(torch.device(args.device))}
    line = json.dumps({"benchmark": "weak_scaling", **about, "rows": rows})
    print(line)
    if args.rows:
        args.rows.parent.mkdir(parents=True, exist_ok=True)
        args.rows.write_text(line + "\n", encoding="utf-8")


def _clips_a_second(ranks: int, device: str, options: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        pin = ["--pin"] if device == "cpu" else []
        command = [*torchrun, "-m", "benchmarks", "training", "--device", device, "--rows", str(rows), *pin, *options]
        environment = os.environ | ({"OMP_NUM_THREADS": "1"} if pin else {})
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            sys.exit(done.stderr)
        found = [json.loads(line)["rows"] for line in rows.read_text(encoding="utf-8").splitlines()[1:]]
    if len(found) != 1 or len(found[0]) != 1:
        sys.exit("name one batch, one length and one precision")
    return float(found[0][0]["clips_a_second"])


if __name__ == "__main__":
    main()
