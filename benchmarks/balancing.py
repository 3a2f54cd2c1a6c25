"""Policies of a load balancer, simulated: replicas with the service's batcher on a virtual clock; no model involved.

Requests and costs are those of `python -m benchmarks queueing`. A request goes to a replica when it arrives, and stays
there:

    round robin        to each in turn
    least connections  to one with the fewest requests under way, as HAProxy's leastconn
    least audio        to one with the fewest seconds of audio under way, which a balancer cannot know by itself
"""

import argparse
import heapq
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.budget import Cost
from benchmarks.queueing import (
    Ours,
    Request,
    Staged,
    add_cost_options,
    add_request,
    columns,
    parts,
    requests_of,
    summary,
)
from service.dispatch.utterance import Utterance

POLICIES = ("round robin", "least connections", "least audio")


@dataclass(eq=False)
class _Replica:
    batcher: Staged
    requests: int = 0
    audio: float = 0.0
    running: list[Utterance] = field(default_factory=list)


def simulate(requests: Sequence[Request], replicas: int, policy: str, cost: Cost, budget: float) -> list[float]:
    """Serve requests until all are answered; return the latency of each."""
    fleet = [_Replica(Staged(budget, Ours(budget, 1 / cost.second))) for _ in range(replicas)]
    left = [0] * len(requests)
    latencies = [0.0] * len(requests)
    turns, ties = itertools.cycle(fleet), itertools.count()
    ends: list[tuple[float, int, _Replica]] = []
    numbers = itertools.count(1)

    def choose() -> _Replica:
        following = next(turns)
        start = fleet.index(following)
        in_turn = fleet[start:] + fleet[:start]  # ties go round robin
        if policy == "least connections":
            return min(in_turn, key=lambda replica: replica.requests)
        if policy == "least audio":
            return min(in_turn, key=lambda replica: replica.audio)
        return following

    def begin(replica: _Replica, now: float) -> None:
        if not replica.running and (batch := replica.batcher.next_batch(now)):
            replica.running = batch
            longest = max(utterance.seconds for utterance in batch)
            heapq.heappush(ends, (now + cost.of(len(batch), longest), next(ties), replica))

    def end(now: float, replica: _Replica) -> None:
        for utterance in replica.running:
            caller = utterance.caller
            assert isinstance(caller, int)
            replica.audio -= utterance.seconds
            left[caller] -= 1
            if not left[caller]:
                replica.requests -= 1
                latencies[caller] = now - requests[caller].arrives
        replica.running = []
        begin(replica, now)

    for caller, request in enumerate(requests):
        while ends and ends[0][0] <= request.arrives:
            now, _, replica = heapq.heappop(ends)
            end(now, replica)
        replica = choose()
        replica.requests += 1
        replica.audio += request.seconds
        left[caller] = parts(request)
        add_request(replica.batcher, request, caller, numbers)
        begin(replica, request.arrives)
    while ends:
        now, _, replica = heapq.heappop(ends)
        end(now, replica)
    return latencies


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_cost_options(parser)
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--loads", type=float, nargs="+", default=[0.3, 0.5, 0.7])
    args = parser.parse_args()

    cost = Cost(args.batch, args.second, args.square)
    rows = []
    print(
        f"{'replicas':>8} {'arrivals':>8} {'load':>5} {'policy':>18} "
        f"{'short p50':>10} {'short p99':>10} {'long p50':>10}"
    )
    for replicas, pattern, load in itertools.product(args.replicas, ("poisson", "bursts"), args.loads):
        requests = requests_of(parser, args, pattern, replicas * load / cost.second)
        for policy in POLICIES:
            figures = summary(simulate(requests, replicas, policy, cost, args.budget), requests)
            rows.append({"replicas": replicas, "arrivals": pattern, "load": load, "policy": policy, **figures})
            print(f"{replicas:8} {pattern:>8} {load:5.1f} {policy:>18} {columns(figures)}")
    about = {"cost": [cost.batch, cost.second, cost.square], "budget": args.budget}
    about |= {"duration": args.duration, "seed": args.seed}
    print(json.dumps({"benchmark": "balancing", **about, "rows": rows}))


if __name__ == "__main__":
    main()
