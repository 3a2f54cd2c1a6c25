"""Does training run on a GPU as on a CPU? A recipe with a teacher, training/recipes/english.yaml, on both.

    python -m benchmarks train_english --speech DIR --teacher FILE --device cuda --minutes 5

Trains as `steno train run` does. After a stop, the same command goes on. Then the first steps are taken on the CPU too,
and losses are compared; in float32 and without noise on states, which devices draw differently, they should agree but
for rounding. Printed are these differences; the speed and the share of time in which no batch was ready, of the later
half of the steps; and memory.
`--toy` rehearses it with a few clips of the tests and a small student.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.environment import describe
from training.loop import train
from training.recipe_file import read_recipe
from training.run import Run
from training.snapshot import STATE

_RECIPE = Path("training/recipes/english.yaml")
_GOLDEN = Path("tests/data/golden")
# The most that the loss of the first step may differ, as a share of it.
_TOLERANCE = 1e-3


def main() -> None:
    """Parse, train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    speech = os.environ.get("SPEECH_DIR", "../shared/speech")
    teacher = os.environ.get("TEACHER", "../shared/teacher/stt_en_conformer_ctc_small.nemo")
    parser.add_argument("--speech", type=Path, default=Path(speech), help="folder with manifest.jsonl")
    parser.add_argument("--teacher", type=Path, default=Path(teacher))
    parser.add_argument("--minutes", type=float, default=5, help="of training on the device, each time that it is run")
    parser.add_argument("--compared", type=int, default=10, help="steps that are taken on the CPU too")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="rehearse it, at sizes whose figures mean nothing")
    parser.add_argument("--rows", type=Path, default=Path("runs/train-english/rows.jsonl"), help="where to keep the "
                        "JSON line; the runs are in a folder beside it")  # fmt: skip
    args = parser.parse_args()

    folder = args.rows.parent / "english"
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(_toy(folder) if args.toy else _document(args)), encoding="utf-8")
    command = [sys.executable, "-m", "cli", "train", "run", str(recipe), "--out", str(folder / "device"), "--resume"]
    subprocess.run([*command, "--device", args.device, "--minutes", str(args.minutes)], check=True)  # noqa: S603
    steps = _log(folder / "device")
    _take_on_cpu(recipe, folder / "cpu", min(args.compared, len(steps)))
    result = _result(steps, _log(folder / "cpu"))
    for name, value in result.items():
        print(f"{name:24} {value if not isinstance(value, float) else f'{value:.4g}'}")
    line = json.dumps({"benchmark": "train_english", **describe(torch.device(args.device)), **result})
    print(line)
    args.rows.write_text(line + "\n", encoding="utf-8")
    if result["first_difference"] > _TOLERANCE:
        sys.exit(f"the loss of the first step differs by {result['first_difference']:.2g} of it")


def _document(args: argparse.Namespace) -> dict[str, Any]:
    """Return the recipe with the files that were named."""
    document: dict[str, Any] = yaml.safe_load(_RECIPE.read_text(encoding="utf-8"))
    speech = args.speech / "manifest.jsonl"
    if not speech.is_file() or not args.teacher.is_file():
        sys.exit(f"{speech} or {args.teacher} is not there; --speech and --teacher name them")
    document["data"]["manifests"] = [str(speech.resolve())]
    document["teacher"] |= {"checkpoint": str(args.teacher.resolve())}
    _without_chance(document)
    document["dev"]["manifest"] = str(speech.resolve())
    return document


def _toy(folder: Path) -> dict[str, Any]:
    """Return the recipe at sizes of a rehearsal."""
    document: dict[str, Any] = yaml.safe_load(_RECIPE.read_text(encoding="utf-8"))
    clips = sorted((_GOLDEN / "clips").resolve().glob("*-?s.wav"))[:8]
    rows = [{"audio": str(path), "duration": int(path.stem[-2]) + 0.4, "text": "and so it is"} for path in clips]
    lines = [json.dumps(row | {"split": split}) + "\n" for row in rows for split in ("train", "dev")]
    (folder / "manifest.jsonl").write_text("".join(lines), encoding="utf-8")
    document["steps"] = 200
    document["data"]["manifests"] = ["manifest.jsonl"]
    document["batches"] = {"seconds": 12}
    document["student"] = {"layers": 2, "width": 32, "heads": 4, "subsampling_channels": 8}
    teacher = (_GOLDEN / "fastconformer-ctc-bpe" / "model.nemo").resolve()
    document["teacher"] |= {"checkpoint": str(teacher)}
    document["teacher"]["apart"] |= {"steps": 2}
    _without_chance(document)
    document["student"]["subsampling_factor"] = 8
    document["dev"] = {"manifest": "manifest.jsonl", "split": "dev", "every": 1000}
    document["save_every"] = 5
    return document


def _without_chance(document: dict[str, Any]) -> None:
    """Change a recipe so that devices take the same steps."""
    document["precision"] = "float32"
    document["teacher"] |= {"swap": 0.0}
    document["teacher"]["apart"] |= {"noise": 0.0}


def _take_on_cpu(recipe: Path, folder: Path, count: int) -> None:
    """Take the first steps on the CPU, if that was not done before."""
    folder.mkdir(exist_ok=True)
    run = Run(read_recipe(recipe), folder, torch.device("cpu"))
    if (folder / STATE).exists():
        run.resume()
    if run.step < count:
        train(run, word_errors=None, report=print, stops=lambda: run.step >= count)


def _log(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if "loss" in row]


def _result(steps: list[dict[str, Any]], on_cpu: list[dict[str, Any]]) -> dict[str, Any]:
    differences = [abs(one["loss"] / other["loss"] - 1) for one, other in zip(steps, on_cpu, strict=False)]
    later = steps[len(steps) // 2 :]
    seconds = sum(step["seconds"] for step in later)
    audio = later[-1]["audio_seconds"] - steps[len(steps) - len(later) - 1]["audio_seconds"] if steps[1:] else 0.0
    return {
        "steps": len(steps),
        "compared": len(differences),
        "first_difference": differences[0],
        "largest_difference": max(differences),
        "first_loss": steps[0]["loss"],
        "last_loss": statistics.fmean(step["loss"] for step in steps[-10:]),
        "steps_a_second": len(later) / seconds,
        "rtfx": audio / seconds,
        "waited": sum(step["waited"] for step in later) / seconds,
        "memory_gb": max(step["memory"] for step in steps) / 1e9,
        "skipped": sum(step.get("skipped", 0) for step in steps),
    }


if __name__ == "__main__":
    main()
