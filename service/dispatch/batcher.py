"""Which utterances leave together, and when: decided only when an engine asks, and never by waiting.

Callers take turns (`turns`). Of the first turn that anybody waits for, the utterance with the highest response ratio,
(wait + own time) / own time, leads: short work does not queue behind long work, and everything's ratio grows while it
waits. A bound makes starvation impossible: when later arrivals have led too often since a caller last had something in
a batch, its first utterance leads before them. Each model, and each of its decoders, has a lane of buckets of its own;
all lanes compete for the lead by the same rules. Buckets have two dimensions: the length of the audio, and whether an
attention decoder writes times into the text, which takes it two to three times the steps. The batch is filled with the
leader's own bucket in the order of turns and arrival, then with the other one of its length, then from the buckets
around them, nearest first, while its padding share stays under a bound: without the neighbours, what is left over in
each bucket would leave in small batches. Later turns may fill it, so none leaves emptier for the sake of fairness. What
is in the background, the parts of jobs, leads where nothing else waits, or when the bound says so, and fills up what
else leaves room; it takes turns of its own. A batch's cost, count x longest, stays within the device's budget, and
counts what is computed: a device of few shapes pads the longest to one of them (`engine/shapes`). An utterance that
alone is over the budget leaves alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.dispatch.buckets import pick_bucket
from service.dispatch.turns import Turns
from service.dispatch.utterance import Lane, Utterance
from service.engine.shapes import computed_seconds, most_rows


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The bounds of a batch for one model.

    Attributes:
        batch_seconds: audio-seconds, padding included.
        padded_seconds: lengths to which the device pads, ascending; none where it is the longest of a batch.
        max_padding_share: of the padded seconds, when other buckets than the leader's fill up a batch.
        max_passed_over: batches led by later arrivals that a caller's utterances may have to let pass.
        rtfx: audio-seconds per second of the device; turns lengths into times for the response ratio.
    """

    batch_seconds: float = 360.0
    padded_seconds: tuple[float, ...] = ()
    max_padding_share: float = 0.2
    max_passed_over: int = 8
    rtfx: float = 1.0

    def most_rows(self, longest: float) -> int:
        """Return how many utterances a batch may have of which the longest has so many seconds."""
        return most_rows(self.batch_seconds, computed_seconds(longest, self.padded_seconds))


class _Place(NamedTuple):
    """A bucket of a lane: the index of its length, and whether its texts have times in them."""

    length: int
    writes_times: bool


class Batcher:
    """The utterances that wait, by bucket; pure bookkeeping, the clock is an argument.

    Args:
        edges: upper bounds of the length buckets in seconds; the last is also what a caller may have in a turn.
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = list(edges)
        # Apart, or who comes while something waits in the background would begin with turns long past.
        self._turns, self._background_turns = Turns(self._edges[-1]), Turns(self._edges[-1])
        # By number: removal is cheap, and the order of insertion is kept to be that of turns and arrival.
        self._lanes: dict[Lane, dict[_Place, dict[int, Utterance]]] = {}

    def __len__(self) -> int:
        return sum(len(bucket) for buckets in self._lanes.values() for bucket in buckets.values())

    def __iter__(self) -> Iterator[Utterance]:
        for buckets in self._lanes.values():
            for bucket in buckets.values():
                yield from bucket.values()

    def add(self, utterance: Utterance) -> None:
        """Let an utterance wait; one that comes back from a lost engine takes its old place."""
        if utterance.turn < 0:
            turns = self._background_turns if utterance.is_background else self._turns
            utterance.turn = turns.take(utterance.caller, utterance.seconds)
        bucket = self._lanes.setdefault(utterance.lane, {}).setdefault(self._place(utterance), {})
        comes_between = bool(bucket) and _order(utterance) < _order(next(reversed(bucket.values())))
        bucket[utterance.number] = utterance
        if comes_between:
            ordered = sorted(bucket.values(), key=_order)
            bucket.clear()
            bucket.update((waiting.number, waiting) for waiting in ordered)

    def remove(self, utterance: Utterance) -> bool:
        """Take out an utterance whose caller has left; False if it does not wait here."""
        buckets = self._lanes.get(utterance.lane)
        if buckets is None:
            return False
        place = self._place(utterance)
        found = buckets.get(place, {}).pop(utterance.number, None)
        if place in buckets and not buckets[place]:
            del buckets[place]
        if not buckets:
            del self._lanes[utterance.lane]
        return found is not None

    def next_batch(self, now: float, policies: Mapping[str, BatchPolicy], *, is_idle: bool = True) -> list[Utterance]:
        """Take out the utterances that should run next.

        Empty only when nothing that is wanted waits, or when what should run next has lost an engine, and this one is
        to be done with what it holds first.

        Args:
            now: monotonic time.
            policies: of the models that may run, by id.
            is_idle: the engine holds nothing.
        """
        self._drop_unwanted()
        self._turns.update([waiting for waiting in self if not waiting.is_background])
        self._background_turns.update([waiting for waiting in self if waiting.is_background])
        leader = self._leader(now, policies)
        if leader is None or (leader.engines_lost and not is_idle):
            return []
        batch = [leader] if leader.alone else self._fill(leader, policies[leader.lane.model])
        for utterance in batch:
            self.remove(utterance)
        served = {utterance.caller for utterance in batch}
        for utterance in self:
            if utterance.caller in served:
                utterance.passed_over = 0
            elif utterance.number < leader.number and utterance.lane.model in policies:
                utterance.passed_over += 1
        return batch

    def _leader(self, now: float, policies: Mapping[str, BatchPolicy]) -> Utterance | None:
        lanes = [buckets for lane, buckets in self._lanes.items() if lane.model in policies]
        waiting = [utterance for buckets in lanes for bucket in buckets.values() for utterance in bucket.values()]
        overdue = [one for one in waiting if one.passed_over >= policies[one.lane.model].max_passed_over]
        if overdue:
            return min(overdue, key=lambda utterance: utterance.number)

        def response_ratio(utterance: Utterance) -> float:
            own_seconds = utterance.seconds / policies[utterance.lane.model].rtfx
            return (now - utterance.arrived + own_seconds) / own_seconds

        heads = [next(iter(bucket.values())) for buckets in lanes for _, bucket in sorted(buckets.items())]
        first = min(map(_turn, heads), default=None)
        return max((head for head in heads if _turn(head) == first), key=response_ratio, default=None)

    def _place(self, utterance: Utterance) -> "_Place":
        return _Place(pick_bucket(utterance.seconds, self._edges), utterance.writes_times)

    def _fill(self, leader: Utterance, policy: BatchPolicy) -> list[Utterance]:
        own = self._place(leader)
        buckets = self._lanes[leader.lane]
        batch, longest, audio = [leader], leader.seconds, leader.seconds
        for is_background in (False, True):
            for place, utterance in _nearest_first(buckets, own):
                if utterance.is_background != is_background or utterance is leader or utterance.alone:
                    continue
                together = max(longest, utterance.seconds)
                if len(batch) + 1 > policy.most_rows(together):
                    continue
                padded = together * (len(batch) + 1)
                if place.length != own.length and 1 - (audio + utterance.seconds) / padded > policy.max_padding_share:
                    continue
                batch.append(utterance)
                longest, audio = together, audio + utterance.seconds
        return batch

    def _drop_unwanted(self) -> None:
        """Nobody waits for these any more: their callers left, or their time ran out."""
        for unwanted in [waiting for waiting in self if waiting.answer.done()]:
            self.remove(unwanted)


def _distance(place: _Place, own: _Place) -> tuple[int, int, bool]:
    return abs(place.length - own.length), place.length, place.writes_times != own.writes_times


def _nearest_first(
    buckets: Mapping[_Place, Mapping[int, Utterance]], own: _Place
) -> Iterator[tuple[_Place, Utterance]]:
    for place in sorted(buckets, key=lambda place: _distance(place, own)):
        for utterance in buckets[place].values():
            yield place, utterance


def _turn(utterance: Utterance) -> tuple[bool, int]:
    return utterance.is_background, utterance.turn


def _order(utterance: Utterance) -> tuple[bool, int, int]:
    return utterance.is_background, utterance.turn, utterance.number
