"""Waiting times by load: the service's batcher against simpler ones, on a virtual clock; no model involved.

One device computes batches with the cost that `python -m benchmarks budget` fitted. Requests arrive singly (Poisson) or
in bursts; one in a hundred lasts ten minutes and is cut into parts, the others 1 to 15 s, 6 s on average. Load is the
audio offered in a second, relative to the device's speed in endless batches, without padding and attention. Policies:

    one by one   in the order of arrival, without batches
    window       in the order of arrival; a batch leaves when 16 wait or the first has waited 100 ms
    steno        service/dispatch/batcher.py, behind the window for parts of long recordings
"""

import argparse
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from benchmarks.budget import Cost
from service.dispatch.batcher import Batcher, BatchPolicy, bucket_edges
from service.dispatch.utterance import Lane, Utterance

LONGEST = 40.0
_LONG_SECONDS = 600.0
_LONG_SHARE = 0.01
_BURST = 16
_WINDOW_SECONDS = 0.1
_WINDOW_CLIPS = 16
_LANE = Lane("any")


@dataclass
class Wanted:
    """An answer that is still wanted."""

    def done(self) -> bool:
        """Return whether it was given or is not wanted any more."""
        return False


class Policy(Protocol):
    """A policy of batching."""

    def add(self, utterance: Utterance) -> None:
        """Add an utterance."""

    def next_batch(self, now: float) -> list[Utterance]:
        """Remove and return the utterances that run now; empty if none does yet."""

    def due(self) -> float:
        """Return when there will be a batch without further arrivals; infinity if never."""


class OneByOne:
    """First come, first served."""

    def __init__(self) -> None:
        self._waiting: list[Utterance] = []

    def add(self, utterance: Utterance) -> None:
        """Add an utterance."""
        self._waiting.append(utterance)

    def next_batch(self, now: float) -> list[Utterance]:  # noqa: ARG002
        """Remove and return the first utterance."""
        taken, self._waiting = self._waiting[:1], self._waiting[1:]
        return taken

    def due(self) -> float:
        """Return infinity: what waits leaves at once."""
        return np.inf


class Window:
    """First come, first served, in batches of a fixed number or after a fixed time."""

    def __init__(self) -> None:
        self._waiting: list[Utterance] = []

    def add(self, utterance: Utterance) -> None:
        """Add an utterance."""
        self._waiting.append(utterance)

    def next_batch(self, now: float) -> list[Utterance]:
        """Remove and return a full batch, or all utterances when the first has waited long enough."""
        if len(self._waiting) < _WINDOW_CLIPS and now < self.due():
            return []
        taken, self._waiting = self._waiting[:_WINDOW_CLIPS], self._waiting[_WINDOW_CLIPS:]
        return taken

    def due(self) -> float:
        """Return when the first utterance will have waited long enough."""
        return self._waiting[0].arrived + _WINDOW_SECONDS if self._waiting else np.inf


class Ours:
    """The batcher of the service.

    Args:
        batch_seconds: its budget.
        rtfx: the device's RTFx.
    """

    def __init__(self, batch_seconds: float, rtfx: float) -> None:
        self._batcher = Batcher(bucket_edges(LONGEST))
        self._policies = {_LANE.model: BatchPolicy(batch_seconds=batch_seconds, rtfx=rtfx)}

    def add(self, utterance: Utterance) -> None:
        """Add an utterance."""
        self._batcher.add(utterance)

    def next_batch(self, now: float) -> list[Utterance]:
        """Remove and return the utterances that the batcher chooses."""
        return self._batcher.next_batch(now, self._policies)

    def due(self) -> float:
        """Return infinity: what waits leaves at once."""
        return np.inf


class Staged:
    """A policy behind the service's window for the parts of long recordings.

    Args:
        batch_seconds: the budget.
        policy: the policy.
    """

    def __init__(self, batch_seconds: float, policy: Policy) -> None:
        self._policy = policy
        self._numbers = itertools.count(1)
        self._window = 2 * batch_seconds  # for the batch that runs, and one more
        self._held = 0.0
        self._waiting: deque[deque[Utterance]] = deque()  # of each long recording, in turns
        self._running: list[Utterance] = []

    def add(self, utterance: Utterance) -> None:
        """Add a clip, or a part for which there is room."""
        utterance.number = next(self._numbers)
        self._policy.add(utterance)

    def add_long(self, parts: Iterable[Utterance]) -> None:
        """Add a long recording."""
        self._waiting.append(deque(parts))

    def next_batch(self, now: float) -> list[Utterance]:
        """Remove and return the utterances that the policy chooses, after the previous batch."""
        self._held -= sum(utterance.seconds for utterance in self._running if utterance.recording_seconds)
        while self._waiting and self._has_room(self._waiting[0][0].seconds):
            parts = self._waiting.popleft()
            part = parts.popleft()
            part.arrived = now
            self._held += part.seconds
            self.add(part)
            if parts:
                self._waiting.append(parts)
        self._running = self._policy.next_batch(now)
        return self._running

    def _has_room(self, seconds: float) -> bool:
        # A part that is longer than the window enters alone. Sums of floats may leave a rest of what is held.
        return self._held < 1e-6 or self._held + seconds <= self._window

    def due(self) -> float:
        """Return infinity: what waits leaves at once."""
        return math.inf


@dataclass(frozen=True, slots=True)
class Request:
    """A recording, and when it arrives."""

    arrives: float
    seconds: float


def arrivals(pattern: str, audio_per_second: float, duration: float, seed: int) -> list[Request]:
    """Draw requests for ``duration`` seconds with ``audio_per_second`` seconds of audio a second."""
    random = np.random.default_rng(seed)
    short = random.triangular(1.0, 1.5, 15.5, size=100_000)  # 6 s on average
    mean = (1 - _LONG_SHARE) * float(short.mean()) + _LONG_SHARE * _LONG_SECONDS
    rate = audio_per_second / mean
    together = 1 if pattern == "poisson" else _BURST
    requests: list[Request] = []
    now = 0.0
    while (now := now + float(random.exponential(together / rate))) < duration:
        for _ in range(together):
            is_long = random.random() < _LONG_SHARE
            requests.append(Request(now, _LONG_SECONDS if is_long else float(random.choice(short))))
    return requests


@dataclass
class Times:
    """The result of a simulation.

    Attributes:
        queued: seconds until the last part of each request was sent.
        done: seconds until each request was answered.
        batches: seconds of each batch.
        passed_over: most batches led by later arrivals while an utterance waited, as the service's batcher counts them.
    """

    queued: list[float]
    done: list[float]
    batches: list[float] = field(default_factory=list)
    passed_over: int = 0


def simulate(requests: Sequence[Request], policy: Policy, cost: Cost) -> Times:
    """Serve requests until all are answered."""
    times = Times([0.0] * len(requests), [0.0] * len(requests))
    numbers = itertools.count(1)
    coming = iter(enumerate(requests))
    upcoming = next(coming, None)
    now = 0.0
    while True:
        while upcoming is not None and upcoming[1].arrives <= now:
            add_request(policy, upcoming[1], upcoming[0], numbers)
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
        later = min(policy.due(), np.inf if upcoming is None else upcoming[1].arrives)
        if later == np.inf:
            return times
        now = max(now, later)


def add_request(policy: Policy, request: Request, caller: int, numbers: Iterator[int]) -> None:
    """Add a recording, in parts if it is long."""
    utterances = _cut(request, caller, numbers)
    if parts(request) > 1 and isinstance(policy, Staged):
        policy.add_long(utterances)
    else:
        for utterance in utterances:
            policy.add(utterance)


def parts(request: Request) -> int:
    """Return the number of utterances of a recording."""
    return max(1, round(request.seconds / LONGEST))


def _cut(request: Request, caller: int, numbers: Iterator[int]) -> Iterator[Utterance]:
    """Cut a recording into parts like the service, but of equal length."""
    count = parts(request)
    seconds, nothing = request.seconds / count, np.empty(0, np.float32)
    for _ in range(count):
        part = Utterance(next(numbers), nothing, seconds, request.arrives, Wanted(), caller, _LANE)  # type: ignore[arg-type]
        part.recording_seconds = request.seconds if count > 1 else 0.0
        yield part


def add_cost_options(parser: argparse.ArgumentParser) -> None:
    """Add options for the cost of a batch, and the duration of arrivals."""
    parser.add_argument("--batch", type=float, default=0.0312, help="fixed cost of a batch in seconds")
    parser.add_argument("--second", type=float, default=0.00801, help="cost of a second of audio in seconds")
    parser.add_argument(
        "--square", type=float, default=0.00009, help="cost of a clip divided by the square of its length"
    )
    parser.add_argument("--budget", type=float, default=60.0, help="padded seconds of a batch")
    parser.add_argument("--duration", type=float, default=1200.0, help="seconds of arrivals")
    parser.add_argument("--seed", type=int, default=1)


def requests_of(
    parser: argparse.ArgumentParser, args: argparse.Namespace, pattern: str, audio_per_second: float
) -> list[Request]:
    """Draw requests as ``arrivals`` does, for the duration of the options; refuse one without a short recording."""
    requests = arrivals(pattern, audio_per_second, args.duration, args.seed)
    if all(request.seconds >= _LONG_SECONDS for request in requests):
        parser.error("no short recording arrives within --duration")
    return requests


def summary(latencies: Sequence[float], requests: Sequence[Request]) -> dict[str, float | None]:
    """Return median and 99th percentile of the latencies of short recordings, and the median of long ones, if any."""
    took = list(zip(latencies, requests, strict=True))
    short = [latency for latency, request in took if request.seconds < _LONG_SECONDS]
    long = [latency for latency, request in took if request.seconds >= _LONG_SECONDS]
    p50, p99 = (round(float(value), 3) for value in np.percentile(short, [50, 99]))
    return {"p50": p50, "p99": p99, "long_p50": round(float(np.median(long)), 3) if long else None}


def columns(figures: Mapping[str, float | None]) -> str:
    """Return a summary as columns of a table."""
    return " ".join(f"{'' if value is None else f'{value:.2f}':>10}" for value in figures.values())


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_cost_options(parser)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    args = parser.parse_args()

    cost = Cost(args.batch, args.second, args.square)
    most = 1 / cost.second
    policies: dict[str, Callable[[], Policy]] = {
        "one by one": OneByOne,
        "window": Window,
        "steno": lambda: Staged(args.budget, Ours(args.budget, most)),
    }
    rows = []
    print(f"{'arrivals':>8} {'load':>5} {'policy':>11} {'short p50':>10} {'short p99':>10} {'long p50':>10}")
    for pattern in ("poisson", "bursts"):
        for load in args.loads:
            requests = requests_of(parser, args, pattern, load * most)
            for name, policy in policies.items():
                figures = summary(simulate(requests, policy(), cost).done, requests)
                rows.append({"arrivals": pattern, "load": load, "policy": name, **figures})
                print(f"{pattern:>8} {load:5.1f} {name:>11} {columns(figures)}")
    about = {"cost": [cost.batch, cost.second, cost.square], "budget": args.budget, "duration": args.duration}
    print(json.dumps({"benchmark": "queueing", **about, "rows": rows}))


if __name__ == "__main__":
    main()
