"""Which utterances leave together, and when: decided only when an engine asks, and never by waiting.

The utterance with the highest response ratio, (wait + own time) / own time, leads: short work does not queue behind
long work, and everything's ratio grows while it waits. A bound makes starvation impossible: what has been passed over
too often leads before all later arrivals. The batch is filled with the leader's own bucket in order of arrival, then
from the buckets around it, nearest first, while its padding share stays under a bound: without the neighbours, what is
left over in each bucket would leave in small batches. Its cost, count x longest, stays within the device's budget; an
utterance that alone is over the budget leaves alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.dispatch.buckets import pick_bucket
from service.dispatch.utterance import Utterance


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The bounds of a batch.

    Attributes:
        batch_seconds: Padded audio-seconds, count x longest.
        max_padding_share: Of the padded seconds, when other buckets than the leader's fill up a batch.
        max_passed_over: Batches led by later arrivals that an utterance may have to let pass.
        rtfx: Audio-seconds per second of the device; turns lengths into times for the response ratio.
    """

    batch_seconds: float = 360.0
    max_padding_share: float = 0.2
    max_passed_over: int = 8
    rtfx: float = 1.0


class Batcher:
    """The utterances that wait, by bucket; pure bookkeeping, the clock is an argument.

    Args:
        edges: Upper bounds of the length buckets in seconds.
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = list(edges)
        # By number: removal is cheap, and the order of insertion is the order of arrival.
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
        return min((utterance.arrived for utterance in self._heads()), default=None)

    def add(self, utterance: Utterance) -> None:
        """Let an utterance wait; one that comes back from a lost engine takes its old place."""
        bucket = self._buckets[pick_bucket(utterance.seconds, self._edges)]
        comes_back = bool(bucket) and utterance.number < next(reversed(bucket))
        bucket[utterance.number] = utterance
        if comes_back:
            ordered = sorted(bucket.items())
            bucket.clear()
            bucket.update(ordered)

    def remove(self, utterance: Utterance) -> bool:
        """Take out an utterance whose caller has left; False if it does not wait here."""
        bucket = self._buckets[pick_bucket(utterance.seconds, self._edges)]
        return bucket.pop(utterance.number, None) is not None

    def next_batch(self, now: float, policy: BatchPolicy) -> list[Utterance]:
        """Take out the utterances that should run next; empty only when nothing that is wanted waits."""
        self._drop_unwanted()
        leader = self._leader(now, policy)
        if leader is None:
            return []
        batch = [leader] if leader.alone else self._fill(leader, policy)
        for utterance in batch:
            self.remove(utterance)
        for utterance in self:
            if utterance.number < leader.number:
                utterance.passed_over += 1
        return batch

    def _heads(self) -> Iterator[Utterance]:
        """The longest-waiting utterance of each bucket: the most urgent one, and the most often passed over."""
        return (next(iter(bucket.values())) for bucket in self._buckets if bucket)

    def _leader(self, now: float, policy: BatchPolicy) -> Utterance | None:
        overdue = [head for head in self._heads() if head.passed_over >= policy.max_passed_over]
        if overdue:
            return min(overdue, key=lambda utterance: utterance.number)

        def response_ratio(utterance: Utterance) -> float:
            own_seconds = utterance.seconds / policy.rtfx
            return (now - utterance.arrived + own_seconds) / own_seconds

        return max(self._heads(), key=response_ratio, default=None)

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
