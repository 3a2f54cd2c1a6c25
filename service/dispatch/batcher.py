"""Forms batches: decides which utterances run together.

It never waits for more utterances: an engine with a free slot gets a batch at once.

*The leader.* Callers take turns (`Turns`). Of the waiting utterances with the earliest turn, the one with the highest
response ratio, (wait + own time) / own time, leads: short work does not queue behind long work, and each ratio grows
with the wait. The own time of a part is that of its whole recording, so that a clip leads before the parts of an hour.

*Starvation.* An utterance that too many batches of later arrivals have passed over is overdue. Every second batch is
led by the first that is overdue. Not every batch: after a busy minute many parts of long recordings are overdue at the
same time, and clips would wait behind all of them. Background utterances (parts of jobs) lead only if nothing else
waits, or if they are overdue; they fill room that is left, and have turns of their own.

*Buckets.* Each decoder of each model has a lane of buckets; lanes compete for the lead by the same rules. A range of
lengths has two buckets, one for texts with times in them: an attention decoder takes two to three times the steps.

*Filling.* A batch is filled from the leader's bucket in the order of turns and arrival, then from the other bucket of
that range, then from other ranges, nearest first, with utterances that keep its padding share under a bound. Without
other ranges, the rest of each bucket would run in small batches. Later turns may fill the batch too.

*Clips beside long recordings.* A clip waits at least for the batch that runs when it comes. So while clips come, parts
of long recordings take only a share of the budget, in batches that they lead and in those that they fill. And while
parts wait, clips may pad a batch half as much again: a clip left out waits through another batch of parts.

*Size.* A batch costs count x longest, which stays within the device's budget. A device with few shapes pads the longest
to one of them (`engine/shapes`). An utterance that alone is over the budget runs alone. The budget (`Budget`) shrinks
when a batch does not fit, and grows again as batches fit: what fits is not known in advance, because other processes
may take memory of the same GPU, and release it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.dispatch.utterance import Lane, Utterance
from service.engine.shapes import computed_seconds, most_rows

# The most padding that utterances from another range of lengths may bring about, the most of the budget that parts of
# recordings have while clips come, and the batches led by later arrivals after which an utterance is overdue.
MAX_PADDING_SHARE = 0.2
PARTS_SHARE = 0.5
MAX_PASSED_OVER = 24
# Clips come until none waits, and this number of batches had none.
_BATCHES_WITHOUT_CLIPS = 24
_PADDING_OF_CLIPS_BESIDE_PARTS = 1.5
_LEAST_SHARE = 1 / 32  # of the full budget; longer utterances run alone anyway
_BUDGET_GROWTH = 1.25
_FIRST_PATIENCE, _MOST_PATIENCE = 16, 1024  # batches; the first misfit doubles it already
_ROUNDING = 1e-6  # of sums
_INFORMATIVE_SHARE = 0.5  # of the budget; smaller batches do not show whether a larger one would fit
# From 2 s on, edges grow by a third to a half: a batch inside one bucket has a third of padding at worst and about a
# seventh on average, and a GPU, which pads to edges, sees few shapes.
DEFAULT_EDGES: tuple[float, ...] = (
    *(1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0),
    *(128.0, 192.0, 256.0, 384.0, 512.0, 768.0),
)


def bucket_edges(longest_seconds: float) -> list[float]:
    """Return the edges in use, ascending; the last one is ``longest_seconds``."""
    return [edge for edge in DEFAULT_EDGES if edge < longest_seconds] + [longest_seconds]


def pick_bucket(seconds: float, edges: Sequence[float]) -> int:
    """Return the index of the smallest bucket that holds an utterance of this length.

    Args:
        seconds: length of the utterance; the last bucket also takes longer ones.
        edges: upper bounds, inclusive, ascending.
    """
    return min(bisect_left(edges, seconds), len(edges) - 1)


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The bounds of a batch for one model."""

    batch_seconds: float  # audio-seconds, padding included
    padded_seconds: Sequence[float] = ()  # lengths that the device pads to, ascending; none: that of the longest
    rtfx: float = 1.0  # audio-seconds per second of the device; turns lengths into times for the response ratio

    def most_rows(self, longest: float, share: float = 1.0) -> int:
        """Return how many utterances, the longest of which has ``longest`` seconds, fit a share of the budget."""
        return most_rows(self.batch_seconds * share, computed_seconds(longest, self.padded_seconds))


class Budget:
    """The audio-seconds, padding included, that batches for one model may have on one device, at first ``full``.

    After a batch that did not fit, it is half of that batch. After a number of batches that fitted and used at least
    half of it, it grows by a quarter. Each misfit doubles that number, so that a permanent limit is hit more and more
    rarely.
    """

    def __init__(self, full: float) -> None:
        self._full = full
        self.seconds = full
        self._patience = _FIRST_PATIENCE
        self._fitting = 0

    def misfit(self, padded_seconds: float) -> None:
        """Record that a batch of several utterances did not fit."""
        if padded_seconds > self.seconds * (1 + _ROUNDING):
            return  # it was formed before the budget was halved, as batches in other slots are
        self.seconds = max(min(self.seconds, padded_seconds) / 2, self._full * _LEAST_SHARE)
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._fitting = 0

    def fit(self, padded_seconds: float) -> None:
        """Record that a batch fitted."""
        if self.seconds >= self._full or padded_seconds < _INFORMATIVE_SHARE * self.seconds:
            return
        self._fitting += 1
        if self._fitting >= self._patience:
            self._fitting = 0
            self.seconds = min(self._full, self.seconds * _BUDGET_GROWTH)


class _BucketKey(NamedTuple):
    """A bucket of a lane."""

    length: int  # the index of its range of lengths
    has_times: bool  # whether the model writes two times with each word, which makes a text two to three times as long


@dataclass(slots=True)
class _Account:
    turn: int
    used_seconds: float = 0.0


class Turns:
    """Assigns turns between callers, so that one caller's hour of audio does not delay another's minute.

    Deficit round robin (Shreedhar and Varghese, "Efficient fair queuing using deficit round robin", 1995): a turn has a
    number of seconds of audio, and what a caller uses beyond that counts against its next turn. An utterance gets its
    turn when it arrives.

    What waits is counted, because each batch asks for it and thousands may wait.

    Args:
        seconds: audio of a turn; at least the longest utterance.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._current = 0
        self._accounts: dict[Hashable, _Account] = {}
        self._callers: Counter[Hashable] = Counter()  # utterances that wait, by caller
        self._turns: Counter[int] = Counter()  # and by turn
        self._idle: set[Hashable] = set()  # callers with nothing waiting that may have an account

    def take(self, caller: Hashable, seconds: float) -> int:
        """Return the turn of a caller's next utterance; an idle caller saves up no turns."""
        account = self._accounts.setdefault(caller, _Account(self._current))
        if caller not in self._callers:
            self._idle.add(caller)
        turn = account.turn
        turns, account.used_seconds = divmod(account.used_seconds + seconds, self._seconds)
        account.turn += int(turns)
        return turn

    def add(self, utterance: Utterance) -> None:
        """Count an utterance that waits."""
        self._callers[utterance.part.caller] += 1
        self._turns[utterance.turn] += 1
        self._idle.discard(utterance.part.caller)

    def remove(self, utterance: Utterance) -> None:
        """Count an utterance no longer."""
        self._turns[utterance.turn] -= 1
        if not self._turns[utterance.turn]:
            del self._turns[utterance.turn]
        self._callers[utterance.part.caller] -= 1
        if not self._callers[utterance.part.caller]:
            del self._callers[utterance.part.caller]
            self._idle.add(utterance.part.caller)

    def update(self) -> None:
        """Move the current turn to the first that waits, and forget callers with nothing waiting and no later turn.

        If nothing waits, forget all.
        """
        self._current = min(self._turns, default=self._current)
        for caller in list(self._idle):
            account = self._accounts.get(caller)
            if account is None or not self._turns or account.turn <= self._current:
                self._accounts.pop(caller, None)
                self._idle.remove(caller)


class Batcher:
    """The waiting utterances by bucket, without a clock of its own.

    Args:
        edges: upper bounds of the length buckets in seconds; the last is also the length of a turn.
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = list(edges)
        # Separate, because background utterances that wait would keep the current turn of the others from advancing.
        self._turns, self._background_turns = Turns(self._edges[-1]), Turns(self._edges[-1])
        # By number, for cheap removal; each bucket is in the order of turns and arrival.
        self._lanes: dict[Lane, dict[_BucketKey, dict[int, Utterance]]] = {}
        # Engines (as sets of models) whose last batch an overdue utterance led. If all engines alternated together, the
        # turn of the overdue might always fall to an engine without their model.
        self._led_by_overdue: set[frozenset[str]] = set()
        self._batches_since_clip = _BATCHES_WITHOUT_CLIPS
        self._clips = 0

    def __len__(self) -> int:
        return sum(len(bucket) for buckets in self._lanes.values() for bucket in buckets.values())

    def __iter__(self) -> Iterator[Utterance]:
        for buckets in self._lanes.values():
            for bucket in buckets.values():
                yield from bucket.values()

    def add(self, utterance: Utterance) -> None:
        """Add an utterance; one that comes back from a lost engine gets its old position."""
        turns = self._turns_of(utterance)
        if utterance.turn < 0:
            utterance.turn = turns.take(utterance.part.caller, utterance.seconds)
        turns.add(utterance)
        self._clips += self._is_clip(utterance)
        bucket = self._lanes.setdefault(utterance.part.lane, {}).setdefault(self._key(utterance), {})
        comes_between = bool(bucket) and _order(utterance) < _order(next(reversed(bucket.values())))
        bucket[utterance.number] = utterance
        if comes_between:
            ordered = sorted(bucket.values(), key=_order)
            bucket.clear()
            bucket.update((waiting.number, waiting) for waiting in ordered)

    def remove(self, utterance: Utterance) -> bool:
        """Remove an utterance; return whether it was waiting."""
        key, buckets = self._key(utterance), self._lanes.get(utterance.part.lane, {})
        if buckets.get(key, {}).pop(utterance.number, None) is None:
            return False
        if not buckets[key]:
            del buckets[key]
        if not buckets:
            del self._lanes[utterance.part.lane]
        self._turns_of(utterance).remove(utterance)
        self._clips -= self._is_clip(utterance)
        return True

    def next_batch(self, now: float, policies: Mapping[str, BatchPolicy], *, is_idle: bool = True) -> list[Utterance]:
        """Remove and return the utterances that should run next.

        Empty only if nothing waits for these models, or if the next utterance has lost an engine and must wait until
        this engine is idle, and holds no batch. ``policies`` are those of each model of the engine, by id.
        """
        for unwanted in [waiting for waiting in self if waiting.answer.done()]:  # its caller left, or it is too late
            self.remove(unwanted)
        self._turns.update()
        self._background_turns.update()
        asking = frozenset(policies)
        overdue = None if asking in self._led_by_overdue else self._first_overdue(policies)
        leader = overdue or self._most_urgent(now, policies)
        if leader is None or (leader.engines_lost and not is_idle):
            return []
        batch = [leader] if leader.alone else self._fill(leader, policies[leader.part.lane.model])
        for utterance in batch:
            self.remove(utterance)
        has_clip = any(self._is_clip(utterance) for utterance in batch)
        self._batches_since_clip = 0 if has_clip else self._batches_since_clip + 1
        if overdue:
            self._led_by_overdue.add(asking)
        else:
            self._led_by_overdue.discard(asking)
        for _, bucket in self._buckets_of(policies):
            for utterance in bucket.values():
                if utterance.number < leader.number:
                    utterance.passed_over += 1
        return batch

    def _first_overdue(self, policies: Mapping[str, BatchPolicy]) -> Utterance | None:
        """Return the first utterance that is overdue."""
        waiting = (one for _, bucket in self._buckets_of(policies) for one in bucket.values())
        overdue = (one for one in waiting if one.passed_over >= MAX_PASSED_OVER)
        return min(overdue, key=lambda utterance: utterance.number, default=None)

    def _most_urgent(self, now: float, policies: Mapping[str, BatchPolicy]) -> Utterance | None:
        """Return the utterance of the first turn with the highest response ratio, and of equal ones the first."""
        buckets = list(self._buckets_of(policies))
        first = min((_turn(next(iter(bucket.values()))) for _, bucket in buckets), default=None)
        leader, highest = None, 0.0
        for policy, bucket in buckets:
            for utterance in bucket.values():
                if _turn(utterance) != first:
                    break
                own_seconds = max(utterance.seconds, utterance.part.recording_seconds) / policy.rtfx
                ratio = (now - utterance.arrived + own_seconds) / own_seconds
                if leader is None or ratio > highest or (ratio == highest and utterance.number < leader.number):
                    leader, highest = utterance, ratio
        return leader

    def _buckets_of(self, policies: Mapping[str, BatchPolicy]) -> Iterator[tuple[BatchPolicy, dict[int, Utterance]]]:
        """Yield the buckets of these models with their policies."""
        for lane, buckets in self._lanes.items():
            if (policy := policies.get(lane.model)) is not None:
                for bucket in buckets.values():
                    yield policy, bucket

    def _turns_of(self, utterance: Utterance) -> Turns:
        return self._background_turns if utterance.part.is_background else self._turns

    def _key(self, utterance: Utterance) -> _BucketKey:
        return _BucketKey(pick_bucket(utterance.seconds, self._edges), utterance.part.prompt.timestamps)

    def _is_clip(self, utterance: Utterance) -> bool:
        """Return whether it is a whole recording; jobs count as parts, because no client waits for them."""
        whole = max(utterance.seconds, utterance.part.recording_seconds)
        return whole <= self._edges[-1] and not utterance.part.is_background

    def _fill(self, leader: Utterance, policy: BatchPolicy) -> list[Utterance]:
        own = self._key(leader)
        buckets = self._lanes[leader.part.lane]
        batch, longest, audio = [leader], leader.seconds, leader.seconds
        most = policy.most_rows(longest)
        clips_come = self._batches_since_clip < _BATCHES_WITHOUT_CLIPS or self._clips > 0
        parts_wait = self._clips < len(self)
        padding_of_clips = MAX_PADDING_SHARE * (_PADDING_OF_CLIPS_BESIDE_PARTS if parts_wait else 1.0)
        budget_of_parts = PARTS_SHARE if clips_come else 1.0
        for is_background in (False, True):
            for key, utterance in _nearest_first(buckets, own):
                if len(batch) >= most:
                    return batch
                if utterance.part.is_background != is_background or utterance is leader or utterance.alone:
                    continue
                is_clip, together = self._is_clip(utterance), max(longest, utterance.seconds)
                if len(batch) + 1 > policy.most_rows(together, 1.0 if is_clip else budget_of_parts):
                    continue
                padding_share = 1 - (audio + utterance.seconds) / (together * (len(batch) + 1))
                most_padding = padding_of_clips if is_clip else MAX_PADDING_SHARE
                if key.length != own.length and padding_share > most_padding:
                    continue
                batch.append(utterance)
                longest, audio = together, audio + utterance.seconds
                most = policy.most_rows(longest)
        return batch


def _nearest_first(
    buckets: Mapping[_BucketKey, Mapping[int, Utterance]], own: _BucketKey
) -> Iterator[tuple[_BucketKey, Utterance]]:
    def distance(key: _BucketKey) -> tuple[int, int, bool]:
        return abs(key.length - own.length), key.length, key.has_times != own.has_times

    for key in sorted(buckets, key=distance):
        for utterance in buckets[key].values():
            yield key, utterance


def _turn(utterance: Utterance) -> tuple[bool, int]:
    return utterance.part.is_background, utterance.turn


def _order(utterance: Utterance) -> tuple[bool, int, int]:
    return utterance.part.is_background, utterance.turn, utterance.number
