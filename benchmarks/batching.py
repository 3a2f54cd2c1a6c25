"""Size and padding of the batcher's batches, for recordings that wait at once; no model is involved."""

import argparse
import json

import numpy as np

from service.dispatch.batcher import Batcher, BatchPolicy, bucket_edges
from service.dispatch.utterance import Lane, Utterance

_LANE = Lane("any")
_LONGEST = 60.0
_SHORTEST = 0.2


class Wanted:
    """An answer that is still wanted."""

    def done(self) -> bool:
        """Return whether it was given or is not wanted any more."""
        return False


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, nargs="+", default=[120.0, 240.0, 360.0, 480.0])
    parser.add_argument("--padding-share", type=float, default=BatchPolicy().max_padding_share)
    parser.add_argument("--recordings", type=int, default=64)
    parser.add_argument("--draws", type=int, default=20)
    args = parser.parse_args()

    rows = []
    print(f"{'lengths':>10} {'budget s':>9} {'per batch':>10} {'padding %':>10}")
    for lengths in ("uniform", "geometric"):
        for budget in args.budget:
            policy = BatchPolicy(batch_seconds=budget, max_padding_share=args.padding_share)
            results = [_simulate(_draw(lengths, args.recordings, seed), policy) for seed in range(args.draws)]
            per_batch, padding = (float(mean) for mean in np.mean(results, axis=0))
            rows.append({"lengths": lengths, "budget": budget, "per_batch": per_batch, "padding_share": padding})
            print(f"{lengths:>10} {budget:9.0f} {per_batch:10.2f} {100 * padding:10.1f}")
    options = {"recordings": args.recordings, "draws": args.draws, "padding_share": args.padding_share}
    print(json.dumps({"benchmark": "batching", **options, "rows": rows}))


def _draw(lengths: str, count: int, seed: int) -> list[float]:
    random = np.random.default_rng(seed)
    spread = (
        random.uniform(_SHORTEST, _LONGEST, count) if lengths == "uniform" else np.geomspace(_SHORTEST, _LONGEST, count)
    )
    seconds: list[float] = random.permutation(spread).tolist()
    return seconds


def _simulate(lengths: list[float], policy: BatchPolicy) -> tuple[float, float]:
    """Return recordings per batch and padding share, with all recordings waiting at the start."""
    batcher = Batcher(bucket_edges(_LONGEST))
    for number, seconds in enumerate(lengths):
        batcher.add(Utterance(number, np.empty(0, np.float32), seconds, 0.0, Wanted(), number, _LANE))  # type: ignore[arg-type]
    now = batches = padded = 0.0
    while batch := batcher.next_batch(now, {_LANE.model: policy}):
        cost = len(batch) * max(utterance.seconds for utterance in batch)
        now, batches, padded = now + cost / policy.rtfx, batches + 1, padded + cost
    return len(lengths) / batches, 1 - sum(lengths) / padded


if __name__ == "__main__":
    main()
