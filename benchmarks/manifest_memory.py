"""The memory and time that a training run's clips take, by the number of lines of the manifest.

    python -m benchmarks manifest_memory --lines 10000 1000000

Times: to read the manifest and make the index of its takes; to open the index again, as a resumed run does; to plan an
epoch of one rank of four and look up the clips of its first batches. Memory, beyond that of a run with one line: at the
end, the process's own (anonymous) pages and those of files, which the system may drop; and the peak of both together.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
import yaml

from benchmarks.environment import describe, process_bytes
from training.ranks import Ranks
from training.recipe_file import read_recipe
from training.run import Run
from training.sampler import Position

_MEGA = 1e6
_WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "goes", "home", "to", "rest")
_PARTS = 4


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--window", type=int, help="clips that are shuffled among each other")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(_measure(args.one)))
        return
    rows = []
    print(f"{'lines':>9} {'manifest MB':>11} {'index MB':>9} {'index s':>8} {'again s':>8} {'plan s':>7} "
          f"{'own MB':>7} {'bytes a clip':>12} {'most MB':>8} {'file MB':>8}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        one_line = _of_lines(Path(folder), 1, args.window)
        for lines in args.lines:
            row = _of_lines(Path(folder), lines, args.window)
            row = {"lines": lines} | {
                name: value - (one_line[name] if name in ("own_mb", "most_mb", "file_mb") else 0)
                for name, value in row.items()
            }
            rows.append(row)
            print(
                f"{lines:>9,} {row['manifest_mb']:>11.1f} {row['index_mb']:>9.1f} {row['index_s']:>8.1f} "
                f"{row['again_s']:>8.2f} {row['plan_s']:>7.2f} {row['own_mb']:>7.1f} "
                f"{row['own_mb'] * _MEGA / lines:>12.0f} {row['most_mb']:>8.1f} {row['file_mb']:>8.1f}",
                flush=True,
            )
    print(json.dumps({"benchmark": "manifest_memory", **describe(torch.device("cpu")), "rows": rows}))


def _of_lines(folder: Path, lines: int, window: int | None) -> dict[str, float]:
    with (folder / "manifest.jsonl").open("w", encoding="utf-8") as file:
        for number in range(lines):
            seconds = 1 + number * 7919 % 15_000 / 1000
            text = " ".join(_WORDS[number % 7 : number % 7 + max(1, int(seconds / 2))])
            fields = {"audio": f"speech/{number // 1000}/{number}.flac", "duration": seconds, "text": text}
            file.write(json.dumps(fields | {"speaker": f"speaker-{number // 100}"}) + "\n")
    # One file is there, as a run without any is refused.
    there = folder / "speech" / "0" / "0.flac"
    there.parent.mkdir(parents=True, exist_ok=True)
    there.touch()
    recipe = {
        "steps": 1,
        "data": {"manifests": ["manifest.jsonl"], "source_balance": 0.5} | ({"window": window} if window else {}),
        "batches": {"seconds": 120, "buckets": 10, "parts": _PARTS},
        "student": {"layers": 1, "width": 16, "heads": 2, "subsampling_channels": 4},
        "optimizer": {"peak": 0.001, "warmup": 0},
        "characters": " abcdefghijklmnopqrstuvwxyz",
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks", "manifest_memory", "--one", str(folder)]
    made = _run(command)
    again = _run(command)
    index = sum(path.stat().st_size for path in (folder / "takes").iterdir())
    sizes = {"manifest_mb": (folder / "manifest.jsonl").stat().st_size / _MEGA, "index_mb": index / _MEGA}
    return (
        sizes
        | {"index_s": made["run_s"], "again_s": again["run_s"], "plan_s": again["plan_s"]}
        | {name: max(made[name], again[name]) for name in ("own_mb", "most_mb", "file_mb")}
    )


def _run(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # this file
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(folder: Path) -> dict[str, float]:
    recipe = read_recipe(folder / "recipe.yaml")
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # PyTorch imports much for its first optimizer
    began = time.perf_counter()
    run = Run(recipe, folder, torch.device("cpu"))
    made = time.perf_counter()
    own = Ranks(1, _PARTS).share(_PARTS)
    for plan in islice(run.sampler.batches(Position(), own), 50):
        for draw in plan.draws:
            assert run.examples.takes[draw.take].clip.text
    return {
        "run_s": made - began,
        "plan_s": time.perf_counter() - made,
        "own_mb": process_bytes("RssAnon") / _MEGA,
        "most_mb": process_bytes("VmHWM") / _MEGA,
        "file_mb": process_bytes("RssFile") / _MEGA,
    }


if __name__ == "__main__":
    main()
