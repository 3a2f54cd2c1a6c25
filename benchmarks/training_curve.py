"""What runs that differ in one thing learned by the same minute: `python -m benchmarks training_curve FOLDER...`.

Reads the logs of runs of `steno train run --out FOLDER`. Minutes are those of their steps, with waiting for batches;
measuring on dev and starting again count nothing. Prints, for each interval, the mean loss of a label and the word
error rate of the interval's last measurement. The last line is JSON, of which `benchmarks plots` makes a picture.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.environment import describe


def main() -> None:
    """Parse, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--interval", type=float, default=2.0, help="minutes that a loss is the mean of")
    args = parser.parse_args()
    runs = [{"name": folder.name, **curve(folder / "log.jsonl", args.interval)} for folder in args.folders]
    print(f"{'minute':>6}", *(f"{run['name']:>24}" for run in runs))
    for minute in sorted({minute for run in runs for minute in run["loss"]}):
        cells = [
            f"{run['loss'].get(minute, float('nan')):10.3f} {100 * run['wer'].get(minute, float('nan')):8.1f} % WER"
            for run in runs
        ]
        print(f"{minute:6g}", *(f"{cell:>24}" for cell in cells))
    for run in runs:
        print(
            f"{run['name']}: {run['steps']:,} steps, {run['clips'] / run['steps']:.1f} clips a step, "
            f"{run['audio_hours']:.2f} h of audio in {run['minutes']:.1f} min, padding {run['padding']:.1%}"
        )
    print(json.dumps({"benchmark": "training_curve", **describe(torch.device("cpu")), "runs": runs}))


def curve(log: Path, interval: float) -> dict[str, Any]:
    """Return what a run had learned by each minute, from its log.

    Returns:
        ``loss`` of a label and ``wer`` by the minute in which an interval ends, an interval that is not over left out;
        ``steps``, ``clips``, ``minutes``, ``audio_hours``, and the share of ``padding`` in the audio.
    """
    sums: defaultdict[float, list[float]] = defaultdict(lambda: [0.0, 0.0])
    rates: dict[float, float] = {}
    steps, clips, seconds, audio, padded = 0, 0, 0.0, 0.0, 0.0
    for line in log.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        end = interval * (seconds // (60 * interval) + 1)
        if "wer" in row:
            rates[end] = row["wer"]["all"]
            continue
        steps, clips, seconds = steps + 1, clips + row["clips"], seconds + row["seconds"]
        padded += (row["audio_seconds"] - audio) / (1 - row["padding_share"])
        audio = row["audio_seconds"]
        total = sums[end]
        total[0] += row["loss"] * row["labels"]
        total[1] += row["labels"]
    whole = {end: total / labels for end, (total, labels) in sums.items() if 60 * end <= seconds}
    return {
        "loss": whole,
        "wer": {end: rate for end, rate in rates.items() if end in whole},
        "steps": steps,
        "clips": clips,
        "minutes": seconds / 60,
        "audio_hours": audio / 3600,
        "padding": 1 - audio / padded,
    }


if __name__ == "__main__":
    main()
