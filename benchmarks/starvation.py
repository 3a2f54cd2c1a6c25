"""Starvation: the service's batcher against first come first served and fixed windows, in virtual time.

    hours   clips at a tenth, a fifth and a third of what the device can do, while three recordings of an hour are
            under way
    flood   more clips than the device can do, for half an hour, and a recording of ten minutes among them
    day     a day with a quiet night and a peak of 70 % of what the device can do, in bursts, and a recording of an hour
            every two hours

The device is slow (20 seconds of audio a second, `--second`), so that a day has few batches; times divided by that of a
mean batch do not depend on it. For clips the time in the queue is printed, for recordings the time until they are done,
relative to that alone. As in the service, parts of long recordings come to the batcher as there is room
(service/dispatch/window.py); the other two policies have them from the beginning.
"""

import argparse
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.budget import Cost
from benchmarks.queueing import LONGEST, Ours, Policy, Request, Window, parts_of
from service.dispatch.utterance import Utterance

_HOUR = 3600.0
_BURST = 8
_MEANWHILE = 450.0  # three hours of audio take 540 s, without any clips


class InOrder:
    """First come, first served, in batches as large as the budget allows.

    Args:
        batch_seconds: the budget.
    """

    def __init__(self, batch_seconds: float) -> None:
        self._batch_seconds = batch_seconds
        self._waiting: list[Utterance] = []
        self._next = 0

    def add(self, utterance: Utterance) -> None:
        """Let one wait."""
        self._waiting.append(utterance)

    def next_batch(self, now: float) -> list[Utterance]:  # noqa: ARG002
        """Remove and return the first utterances, as many as fit."""
        batch: list[Utterance] = []
        longest = 0.0
        while self._next < len(self._waiting):
            one = self._waiting[self._next]
            longest = max(longest, one.seconds)
            if batch and longest * (len(batch) + 1) > self._batch_seconds:
                break
            batch.append(one)
            self._next += 1
        return batch

    def due(self) -> float:
        """Return infinity: what waits leaves at once."""
        return math.inf


class Staged:
    """The batcher of the service, behind its window for the parts of long recordings.

    Args:
        batch_seconds: the budget.
        rtfx: the device's RTFx.
    """

    def __init__(self, batch_seconds: float, rtfx: float) -> None:
        self._batcher = Ours(batch_seconds, rtfx)
        self._room = 2 * batch_seconds  # for the batch that runs, and one more
        self._waiting: deque[deque[Utterance]] = deque()  # of each long recording, in turns
        self._staged: set[int] = set()
        self._running: list[Utterance] = []

    def add(self, utterance: Utterance) -> None:
        """Let a clip wait."""
        self._batcher.add(utterance)

    def add_long(self, parts: Iterable[Utterance]) -> None:
        """Let a long recording wait."""
        self._waiting.append(deque(parts))

    def next_batch(self, now: float) -> list[Utterance]:
        """Remove and return the utterances that the batcher chooses; the batch before is done."""
        for utterance in self._running:
            if utterance.number in self._staged:
                self._staged.remove(utterance.number)
                self._room += utterance.seconds
        while self._waiting and self._waiting[0][0].seconds <= self._room:
            parts = self._waiting.popleft()
            part = parts.popleft()
            part.arrived = now
            self._room -= part.seconds
            self._staged.add(part.number)
            self._batcher.add(part)
            if parts:
                self._waiting.append(parts)
        self._running = self._batcher.next_batch(now)
        return self._running

    def due(self) -> float:
        """Return infinity: what waits leaves at once."""
        return math.inf


@dataclass
class Times:
    """The result of a simulation.

    Attributes:
        queued: seconds until the last part of each request was sent.
        done: seconds until each request was answered.
        batches: seconds of each batch.
        passed_over: most batches led by later arrivals while an utterance waited.
    """

    queued: list[float]
    done: list[float]
    batches: list[float] = field(default_factory=list)
    passed_over: int = 0


def run(requests: Sequence[Request], policy: Policy, cost: Cost) -> Times:
    """Serve requests until all are answered."""
    times = Times([0.0] * len(requests), [0.0] * len(requests))
    numbers = itertools.count(1)
    coming = iter(enumerate(requests))
    upcoming = next(coming, None)
    now = 0.0
    while True:
        while upcoming is not None and upcoming[1].arrives <= now:
            parts = list(parts_of(upcoming[1], upcoming[0], numbers))
            if len(parts) > 1 and isinstance(policy, Staged):
                policy.add_long(parts)
            else:
                for part in parts:
                    policy.add(part)
            upcoming = next(coming, None)
        if batch := policy.next_batch(now):
            took = cost.of(len(batch), max(utterance.seconds for utterance in batch))
            times.batches.append(took)
            for utterance in batch:
                assert isinstance(utterance.caller, int)
                times.queued[utterance.caller] = now - requests[utterance.caller].arrives
                times.done[utterance.caller] = now + took - requests[utterance.caller].arrives
                times.passed_over = max(times.passed_over, utterance.passed_over)
            now += took
            continue
        later = min(policy.due(), math.inf if upcoming is None else upcoming[1].arrives)
        if later == math.inf:
            return times
        now = max(now, later)


def clips(load: Callable[[float], float], most: float, duration: float, seed: int) -> list[Request]:
    """Draw clips of 6 s on average, in bursts, for a load of ``load(t)``."""
    random = np.random.default_rng(seed)
    drawn: list[Request] = []
    now, peak = 0.0, max(load(duration * step / 1000) for step in range(1000))
    while (now := now + float(random.exponential(6.0 * _BURST / (peak * most)))) < duration:
        if random.random() < load(now) / peak:
            drawn += [Request(now, float(seconds)) for seconds in random.triangular(1.0, 1.5, 15.5, size=_BURST)]
    return drawn


def scenarios(most: float, seed: int) -> dict[str, list[Request]]:
    """Return the requests of each scenario, in the order of arrival."""
    peak = 0.7
    day = clips(lambda at: peak * (0.5 - 0.5 * math.cos(2 * math.pi * at / (24 * _HOUR))) ** 2, most, 24 * _HOUR, seed)
    return {
        **{
            f"hours, clips {share:.0%}": _in_order(
                clips(lambda _, share=share: share, most, _MEANWHILE, seed)  # type: ignore[misc]
                + [Request(0.0, _HOUR) for _ in range(3)]
            )
            for share in (0.1, 0.2, 0.33)
        },
        "flood": _in_order([*clips(lambda _: 1.1, most, _HOUR / 2, seed), Request(60.0, 600.0)]),
        "day": _in_order(day + [Request(at, _HOUR) for at in np.arange(0.0, 24 * _HOUR, 2 * _HOUR)]),
    }


def _in_order(requests: list[Request]) -> list[Request]:
    return sorted(requests, key=lambda one: one.arrives)


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=float, default=0.2, help="fixed cost of a batch in seconds")
    parser.add_argument("--second", type=float, default=0.05, help="cost of a second of audio in seconds")
    parser.add_argument("--budget", type=float, default=60.0, help="padded seconds of a batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenarios", nargs="+", default=["hours", "flood", "day"])
    args = parser.parse_args()

    cost, most = Cost(args.batch, args.second, 0.0), 1 / args.second
    policies: dict[str, Callable[[], Policy]] = {
        "in order": lambda: InOrder(args.budget),
        "window": Window,
        "steno": lambda: Staged(args.budget, most),
    }
    rows = []
    for name, requests in scenarios(most, args.seed).items():
        if name.partition(",")[0] not in args.scenarios:
            continue
        is_long = np.array([one.seconds > LONGEST for one in requests])
        for policy_name, policy in policies.items():
            times = run(requests, policy(), cost)
            queued, done = np.array(times.queued), np.array(times.done)
            meanwhile = np.cumsum(times.batches) < _MEANWHILE if name.startswith("hours") else slice(None)
            batch = float(np.mean(np.array(times.batches)[meanwhile]))
            alone = np.array([one.seconds for one in requests]) * args.second
            row = {
                "scenario": name,
                "policy": policy_name,
                "clips": int((~is_long).sum()),
                "batch_s": round(batch, 2),
                "clip_p50_batches": round(float(np.percentile(queued[~is_long], 50)) / batch, 2),
                "clip_p99_batches": round(float(np.percentile(queued[~is_long], 99)) / batch, 2),
                "clip_max_batches": round(float(queued[~is_long].max()) / batch, 1),
                "long_p50_of_alone": round(float(np.median((done / alone)[is_long])), 2),
                "long_max_of_alone": round(float((done / alone)[is_long].max()), 2),
                "passed_over": times.passed_over,
            }
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    print(
        json.dumps({"benchmark": "starvation", "cost": [cost.batch, cost.second], "budget": args.budget, "rows": rows})
    )


if __name__ == "__main__":
    main()
