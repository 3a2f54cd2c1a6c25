"""Whether anybody starves: waits with the service's batcher and with simpler policies, on a virtual clock.

    hours   clips at a tenth, a fifth and a third of what the device can do, while three recordings of an hour are
            under way; the clips come one by one, or eight at a time
    flood   more clips than the device can do, for half an hour, and a recording of ten minutes among them
    day     a day with a quiet night and a peak of 70 % of what the device can do, in bursts, and a recording of an hour
            every two hours

    in order      first come, first served, in batches as large as the budget allows
    window        first come, first served, in batches of 16, or of what there is after 100 ms
    clips first   parts of long recordings only while no clip waits: short waits of clips, but long recordings may
                  starve
    no hours      the service's batcher without any long recordings: what clips wait for each other
    steno         the service's batcher, behind its window for the parts of long recordings

The device is slow (20 seconds of audio a second, `--second`), so that a day has few batches. With the same ratio of
`--batch` to `--second`, clips of a faster one wait as many mean batches beside hours, but more in the flood. Printed
are the wait of clips in the queue, in mean batches; the time until a long recording is done, divided by what its
seconds alone cost; and the most batches that later arrivals led while an utterance waited (with *clips first*, only
batches of its own kind count). All are means over the seeds. The first two policies have the parts of long recordings
from the beginning; to the others, parts come when there is room, as in the service (service/dispatch/window.py).
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from tqdm import tqdm

from benchmarks.budget import Cost
from benchmarks.queueing import LONGEST, Ours, Policy, Request, Staged, Window, simulate
from service.dispatch.utterance import Utterance

_HOUR = 3600.0
_BURST = 8
_SCENARIOS = ("hours", "flood", "day")
# In the scenario of hours, clips come for as long as the device takes for this audio, so the three hours outlast them.
_MEANWHILE = 2.5 * _HOUR


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
        """Add an utterance."""
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


class ClipsFirst:
    """The batcher of the service, but parts of long recordings wait until no clip does.

    Args:
        batch_seconds: the budget.
        rtfx: the device's RTFx.
    """

    def __init__(self, batch_seconds: float, rtfx: float) -> None:
        self._clips, self._parts = Ours(batch_seconds, rtfx), Ours(batch_seconds, rtfx)

    def add(self, utterance: Utterance) -> None:
        """Add an utterance."""
        (self._parts if utterance.recording_seconds else self._clips).add(utterance)

    def next_batch(self, now: float) -> list[Utterance]:
        """Remove and return clips, or parts if there are no clips."""
        return self._clips.next_batch(now) or self._parts.next_batch(now)

    def due(self) -> float:
        """Return infinity: what waits leaves at once."""
        return math.inf


def clips(
    load: Callable[[float], float], most: float, duration: float, seed: int, burst: int = _BURST
) -> list[Request]:
    """Draw bursts of clips of 6 s on average, which load the device by the share ``load(t)``."""
    random = np.random.default_rng(seed)
    drawn: list[Request] = []
    now, peak = 0.0, max(load(duration * step / 1000) for step in range(1000))
    while (now := now + float(random.exponential(6.0 * burst / (peak * most)))) < duration:
        if random.random() < load(now) / peak:
            drawn += [Request(now, float(seconds)) for seconds in random.triangular(1.0, 1.5, 15.5, size=burst)]
    return drawn


def scenarios(most: float, seed: int) -> dict[str, list[Request]]:
    """Return the requests of each scenario, in the order of arrival."""
    peak = 0.7
    day = clips(lambda at: peak * (0.5 - 0.5 * math.cos(2 * math.pi * at / (24 * _HOUR))) ** 2, most, 24 * _HOUR, seed)
    return {
        **{
            f"hours, clips {share:.0%}, {together}": _in_order(
                clips(lambda _, share=share: share, most, _MEANWHILE / most, seed, burst)  # type: ignore[misc]
                + [Request(0.0, _HOUR) for _ in range(3)]
            )
            for burst, together in ((1, "one by one"), (_BURST, "bursts"))
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
    parser.add_argument("--seeds", type=int, default=5, help="number of random draws of the requests")
    parser.add_argument("--scenarios", nargs="+", choices=_SCENARIOS, default=_SCENARIOS)
    args = parser.parse_args()

    cost, most = Cost(args.batch, args.second, 0.0), 1 / args.second
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for seed in tqdm(range(1, args.seeds + 1), disable=None):
        for name, requests in scenarios(most, seed).items():
            if name.partition(",")[0] in args.scenarios:
                for policy, row in _compared(name, requests, cost, args.budget):
                    found.setdefault((name, policy), []).append(row)
    rows = []
    for (scenario, policy), of_seeds in found.items():
        means = {key: round(float(np.mean([row[key] for row in of_seeds])), 2) for key in of_seeds[0]}
        rows.append({"scenario": scenario, "policy": policy, **means})
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()))
    about = {"cost": [cost.batch, cost.second], "budget": args.budget, "seeds": args.seeds}
    print(json.dumps({"benchmark": "starvation", **about, "rows": rows}))


def _compared(
    scenario: str, requests: Sequence[Request], cost: Cost, budget: float
) -> Iterator[tuple[str, dict[str, float]]]:
    most = 1 / cost.second
    policies: dict[str, Callable[[], Policy]] = {
        "in order": lambda: InOrder(budget),
        "window": Window,
        "clips first": lambda: Staged(budget, ClipsFirst(budget, most)),
        "no hours": lambda: Staged(budget, Ours(budget, most)),
        "steno": lambda: Staged(budget, Ours(budget, most)),
    }
    for policy, made in policies.items():
        served = [one for one in requests if one.seconds <= LONGEST or policy != "no hours"]
        times = simulate(served, made(), cost)
        is_long = np.array([one.seconds > LONGEST for one in served])
        queued, slowdown = np.array(times.queued), np.array(times.done) / [one.seconds * cost.second for one in served]
        ends = np.cumsum(times.batches)
        meanwhile = ends < _MEANWHILE / most if scenario.startswith("hours") else slice(None)
        batch = float(np.mean(np.array(times.batches)[meanwhile]))
        p50, p99, longest = np.percentile(queued[~is_long], (50, 99, 100)) / batch
        row = {"batch_s": batch, "clip_p50_batches": p50, "clip_p99_batches": p99, "clip_max_batches": longest}
        if is_long.any():
            row |= {"long_p50_of_alone": np.median(slowdown[is_long]), "long_max_of_alone": slowdown[is_long].max()}
        yield policy, {key: float(value) for key, value in row.items()} | {"passed_over": times.passed_over}


if __name__ == "__main__":
    main()
