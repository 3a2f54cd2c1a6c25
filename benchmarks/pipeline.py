"""For how much of the time a device waits for its next batch, by how many batches its engine holds; calculated.

A slot goes round: the front forms a batch for it and copies its samples to the engine (stage), one thread of the
engine lays them out for the device, another launches the work, the device does it, a third thread writes out the texts
and sends them, and the slot is free again; or it is free when the device is done. Each thread, and the device, has one
batch at a time, and enough work waits. The times are arguments: milliseconds of batches that fill a large GPU.
"""

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np

_BATCHES = 10_000
_SEED = 0


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds that a batch takes of each.

    Attributes:
        form: the front's event loop, from a message of the engine to a batch.
        stage: the front's thread that copies samples.
        lay_out: the engine's thread that lays them out in pinned memory.
        launch: the engine's thread that gives the device its work.
        device: the device.
        write: the engine's thread that writes out the texts and sends them.
    """

    form: float
    stage: float
    lay_out: float
    launch: float
    device: float
    write: float


def main() -> None:
    """Parse, calculate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", type=float, default=2.0)
    parser.add_argument("--stage", type=float, default=10.8)
    parser.add_argument("--lay-out", type=float, default=9.7)
    parser.add_argument("--launch", type=float, default=7.0)
    parser.add_argument("--device", type=float, default=40.0)
    parser.add_argument("--write", type=float, nargs="+", default=[31.3, 3.6], help="before and now")
    parser.add_argument("--spread", type=float, default=0.25, help="of the device's times, either way")
    args = parser.parse_args()

    rows = []
    print(f"{'write':>6} {'slots':>6} {'free':>10} {'idle':>8}")
    for write in args.write:
        times = Times(args.form, args.stage, args.lay_out, args.launch, args.device, write)
        for slots, when_done in ((2, False), (2, True), (3, False)):
            idle = idle_share(times, slots, when_done=when_done, spread=args.spread)
            free = "when done" if when_done else "when sent"
            rows.append({**asdict(times), "slots": slots, "free": free, "idle": idle})
            print(f"{write:6.1f} {slots:6d} {free:>10} {100 * idle:6.1f} %")
    print(json.dumps({"benchmark": "pipeline", "spread": args.spread, "rows": rows}))


def idle_share(times: Times, slots: int, *, when_done: bool, spread: float = 0.0, batches: int = _BATCHES) -> float:
    """Return for how much of the time the device has nothing to do.

    Args:
        times: of a batch.
        slots: batches that the engine holds.
        when_done: whether a slot is free when the device is done, and not when the texts were sent.
        spread: the device's times lie so much of themselves below or above what is said.
        batches: to look at.
    """
    device = times.device * np.random.default_rng(_SEED).uniform(1 - spread, 1 + spread, batches)
    free = [0.0] * slots
    formed = staged = laid_out = launched = done = written = began = 0.0
    for index in range(batches):
        formed = max(formed, free[index % slots]) + times.form
        staged = max(staged, formed) + times.stage
        laid_out = max(laid_out, staged) + times.lay_out
        launches_from = max(launched, laid_out)
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
