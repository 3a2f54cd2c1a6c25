"""The share of time that a device idles between batches, by the number of slots of its engine; calculated.

The cycle of a slot: the front forms a batch and copies its samples to the engine (stage), a thread of the engine copies
them to pinned memory (collate), another launches the work, the device computes, a third thread detokenizes and sends
the texts (write). Then the slot is free ("when sent"), or already when the device is done ("when done"). Each thread,
and the device, has one batch at a time, and enough work waits. The default times are of batches that fill a large GPU.
"""

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np

_BATCHES = 10_000
_SEED = 0


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of each stage of a batch.

    Attributes:
        form: making a batch after the engine's message, on the front's event loop.
        stage: copying samples, in a thread of the front.
        collate: copying them, padded, to pinned memory, in a thread of the engine.
        launch: launching the work, in a thread of the engine.
        device: on the device.
        write: detokenizing and sending the texts, in a thread of the engine.
    """

    form: float
    stage: float
    collate: float
    launch: float
    device: float
    write: float


def main() -> None:
    """Parse, calculate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", type=float, default=2.0)
    parser.add_argument("--stage", type=float, default=10.8)
    parser.add_argument("--collate", type=float, default=9.7)
    parser.add_argument("--launch", type=float, default=7.0)
    parser.add_argument("--device", type=float, default=40.0)
    parser.add_argument(
        "--write",
        type=float,
        nargs="+",
        default=[31.3, 0.7],
        help="values to compare; the defaults: before and after batched detokenizing",
    )
    parser.add_argument(
        "--spread", type=float, default=0.25, help="spread of the device's times, as a share, both ways"
    )
    args = parser.parse_args()

    rows = []
    print(f"{'write':>6} {'slots':>6} {'free':>10} {'idle':>8}")
    for write in args.write:
        times = Times(args.form, args.stage, args.collate, args.launch, args.device, write)
        for slots, when_done in ((2, False), (2, True), (3, False)):
            idle = idle_share(times, slots, when_done=when_done, spread=args.spread)
            free = "when done" if when_done else "when sent"
            rows.append({**asdict(times), "slots": slots, "free": free, "idle": idle})
            print(f"{write:6.1f} {slots:6d} {free:>10} {100 * idle:6.1f} %")
    print(json.dumps({"benchmark": "pipeline", "spread": args.spread, "rows": rows}))


def idle_share(times: Times, slots: int, *, when_done: bool, spread: float = 0.0, batches: int = _BATCHES) -> float:
    """Return the share of time in which the device idles.

    Args:
        times: the times of a batch.
        slots: slots of the engine.
        when_done: whether a slot is free when the device is done, and not when the texts were sent.
        spread: largest deviation of the device's times, as a share.
        batches: number of batches to simulate.
    """
    device = times.device * np.random.default_rng(_SEED).uniform(1 - spread, 1 + spread, batches)
    free = [0.0] * slots
    formed = staged = collated = launched = done = written = began = 0.0
    for index in range(batches):
        formed = max(formed, free[index % slots]) + times.form
        staged = max(staged, formed) + times.stage
        collated = max(collated, staged) + times.collate
        launches_from = max(launched, collated)
        launched = launches_from + times.launch
        # The device begins with the first launch, and cannot be done before the last.
        begins = max(done, launches_from)
        began = began or begins
        done = max(begins + device[index], launched)
        written = max(written, done) + times.write
        free[index % slots] = done if when_done else written
    return max(0.0, float(1 - device.sum() / (done - began)))


if __name__ == "__main__":
    main()
