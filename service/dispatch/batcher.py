"""Which utterances leave together, and when: decided only when an engine asks, and never by waiting.

Callers take turns (`turns`). Of the first turn that anybody waits for, the utterance with the highest response ratio,
(wait + own time) / own time, leads: short work does not queue behind long work, and everything's ratio grows while it
waits. A bound makes starvation impossible: when later arrivals have led too often since a caller last had something in
a batch, its first utterance leads before them. The batch is filled with the leader's own bucket in the order of turns
and arrival, then from the buckets around it, nearest first, while its padding share stays under a bound: without the
neighbours, what is left over in each bucket would leave in small batches. Later turns may fill it, so none leaves
emptier for the sake of fairness. Its cost, count x longest, stays within the device's budget; an utterance that alone
is over the budget leaves alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.dispatch.buckets import pick_bucket
from service.dispatch.turns import Turns
from service.dispatch.utterance import Utterance


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The bounds of a batch.

    Attributes:
        batch_seconds: Padded audio-seconds, count x longest.
        max_padding_share: Of the padded seconds, when other buckets than the leader's fill up a batch.
        max_passed_over: Batches led by later arrivals that a caller's utterances may have to let pass.
        rtfx: Audio-seconds per second of the device; turns lengths into times for the response ratio.
    """

    batch_seconds: float = 360.0
    max_padding_share: float = 0.2
    max_passed_over: int = 8
    rtfx: float = 1.0


class Batcher:
    """The utterances that wait, by bucket; pure bookkeeping, the clock is an argument.

    Args:
        edges: Upper bounds of the length buckets in seconds; the last is also what a caller may have in a turn.
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = list(edges)
        self._turns = Turns(self._edges[-1])
        # By number: removal is cheap, and the order of insertion is kept to be that of turns and arrival.
        self._buckets: list[dict[int, Utterance]] = [{} for _ in self._edges]

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[Utterance]:
        for bucket in self._buckets:
            yield from bucket.values()

    @property
    def audio_seconds(self) -> float:
        """Audio that waits."""
        return sum(utterance.seconds for utterance in self)

    @property
    def oldest_arrival(self) -> float | None:
        """Monotonic time at which the longest-waiting utterance came."""
        return min((utterance.arrived for utterance in self), default=None)

    def add(self, utterance: Utterance) -> None:
        """Let an utterance wait; one that comes back from a lost engine takes its old place."""
        if utterance.turn < 0:
            utterance.turn = self._turns.take(utterance.caller, utterance.seconds)
        bucket = self._buckets[pick_bucket(utterance.seconds, self._edges)]
        comes_between = bool(bucket) and _order(utterance) < _order(next(reversed(bucket.values())))
        bucket[utterance.number] = utterance
        if comes_between:
            ordered = sorted(bucket.values(), key=_order)
            bucket.clear()
            bucket.update((waiting.number, waiting) for waiting in ordered)

    def remove(self, utterance: Utterance) -> bool:
        """Take out an utterance whose caller has left; False if it does not wait here."""
        bucket = self._buckets[pick_bucket(utterance.seconds, self._edges)]
        return bucket.pop(utterance.number, None) is not None

    def next_batch(self, now: float, policy: BatchPolicy) -> list[Utterance]:
        """Take out the utterances that should run next; empty only when nothing that is wanted waits."""
        self._drop_unwanted()
        self._turns.update(list(self))
        leader = self._leader(now, policy)
        if leader is None:
            return []
        batch = [leader] if leader.alone else self._fill(leader, policy)
        for utterance in batch:
            self.remove(utterance)
        served = {utterance.caller for utterance in batch}
        for utterance in self:
            if utterance.caller in served:
                utterance.passed_over = 0
            elif utterance.number < leader.number:
                utterance.passed_over += 1
        return batch

    def _leader(self, now: float, policy: BatchPolicy) -> Utterance | None:
        overdue = [utterance for utterance in self if utterance.passed_over >= policy.max_passed_over]
        if overdue:
            return min(overdue, key=lambda utterance: utterance.number)

        def response_ratio(utterance: Utterance) -> float:
            own_seconds = utterance.seconds / policy.rtfx
            return (now - utterance.arrived + own_seconds) / own_seconds

        heads = [next(iter(bucket.values())) for bucket in self._buckets if bucket]
        first_turn = min((head.turn for head in heads), default=None)
        return max((head for head in heads if head.turn == first_turn), key=response_ratio, default=None)

    def _fill(self, leader: Utterance, policy: BatchPolicy) -> list[Utterance]:
        own = pick_bucket(leader.seconds, self._edges)
        batch, longest, audio = [leader], leader.seconds, leader.seconds
        for index in sorted(range(len(self._buckets)), key=lambda index: (abs(index - own), index)):
            for utterance in self._buckets[index].values():
                padded = max(longest, utterance.seconds) * (len(batch) + 1)
                if utterance is leader or utterance.alone or padded > policy.batch_seconds:
                    continue
                if index != own and 1 - (audio + utterance.seconds) / padded > policy.max_padding_share:
                    continue
                batch.append(utterance)
                longest, audio = max(longest, utterance.seconds), audio + utterance.seconds
        return batch

    def _drop_unwanted(self) -> None:
        """Nobody waits for these any more: their callers left, or their time ran out."""
        for bucket in self._buckets:
            for number in [number for number, waiting in bucket.items() if waiting.answer.done()]:
                del bucket[number]


def _order(utterance: Utterance) -> tuple[int, int]:
    return utterance.turn, utterance.number
