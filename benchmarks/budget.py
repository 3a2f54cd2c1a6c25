"""The batch size in audio-seconds beyond which larger batches are hardly faster: `python -m benchmarks budget FILE`.

The file has the output of `latency`. A batch costs a + b * clips * seconds + c * clips * seconds^2: a fixed cost, one
that grows with the audio, and attention. The three are fitted to the measured times, for small relative errors.
"""

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

_SECONDS = (2.0, 7.0, 16.7, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a batch, in seconds.

    Attributes:
        batch: fixed cost of a batch.
        second: cost of a second of audio or padding.
        square: cost of the attention in a clip, divided by the square of its length.
    """

    batch: float
    second: float
    square: float

    def of(self, clips: int, seconds: float) -> float:
        """Return the cost of a batch of ``clips`` clips of ``seconds``."""
        return self.batch + clips * seconds * (self.second + self.square * seconds)

    def budget(self, seconds: float, share: float) -> float:
        """Return the audio-seconds of a batch of clips of ``seconds`` that reaches ``share`` of the highest RTFx."""
        rate = self.second + self.square * seconds
        return self.batch * share / ((1 - share) * rate) if rate else math.inf


def fitted(clips: Sequence[int], seconds: Sequence[float], times: Sequence[float]) -> Cost:
    """Fit the cost to measured times, with no negative part."""
    count, length, time = (np.asarray(values, dtype=np.float64) for values in (clips, seconds, times))
    terms = np.stack([np.ones_like(time), count * length, count * length**2], axis=1) / time[:, None]
    fits = []
    # Non-negative least squares: each choice of parts is fitted, with 0 for the others.
    for used in itertools.product((True, False), repeat=terms.shape[1]):
        parts = np.linalg.lstsq(terms * used, np.ones_like(time))[0] * used
        if (parts >= 0).all():
            fits.append((float(np.square(terms @ parts - 1).sum()), *map(float, parts)))
    _, *best = min(fits)
    return Cost(*best)


def main() -> None:
    """Parse, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="file with output of `latency`")
    parser.add_argument("--share", type=float, default=0.95, help="share of the highest RTFx that a batch should reach")
    args = parser.parse_args()

    document = json.loads(args.file.read_text(encoding="utf-8").splitlines()[-1])
    found = []
    print(f"{'dtype':>9} {'batch ms':>9} {'second ms':>10} {'square ms':>10} {'error':>6}  audio-seconds, for clips of")
    print(" " * 49 + "".join(f"{f'{seconds:g} s':>8}" for seconds in _SECONDS))
    for dtype in dict.fromkeys(row["dtype"] for row in document["rows"]):
        rows = [row for row in document["rows"] if row["dtype"] == dtype]
        cost = fitted(*([row[key] for row in rows] for key in ("batch", "seconds", "p50")))
        errors = [abs(cost.of(row["batch"], row["seconds"]) / row["p50"] - 1) for row in rows]
        budgets = {seconds: cost.budget(seconds, args.share) for seconds in _SECONDS}
        parts = f"{1000 * cost.batch:9.1f} {1000 * cost.second:10.2f} {1000 * cost.square:10.4f}"
        print(f"{dtype:>9} {parts} {max(errors):6.0%} " + "".join(f"{budget:8.0f}" for budget in budgets.values()))
        found.append({"dtype": dtype, **asdict(cost), "worst_error": max(errors), "budgets": budgets})
    about = {key: value for key, value in document.items() if key not in ("benchmark", "rows")}
    print(json.dumps({"benchmark": "budget", **about, "share": args.share, "rows": found}))


if __name__ == "__main__":
    main()
