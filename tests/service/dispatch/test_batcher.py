from dataclasses import dataclass, field
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.dispatch import batcher as batching
from service.dispatch.batcher import Batcher, BatchPolicy, bucket_edges, pick_bucket
from service.dispatch.utterance import Lane, Part, Utterance
from transcripts.prompt import Prompt

EDGES = (2.0, 4.0, 8.0, 16.0, 60.0)
LANE = Lane("m")
LANES = (LANE, Lane("m", "ctc"), Lane("other"))
SECONDS = st.floats(0.1, 60.0)


@dataclass
class Answer:
    """Stands in for a future, because batches are formed without an event loop."""

    cancelled: bool = False

    def done(self) -> bool:
        return self.cancelled


@dataclass
class Queue:
    """A batcher with utterances numbered in the order they are added."""

    batcher: Batcher = field(default_factory=lambda: Batcher(EDGES))
    added: int = 0

    def add(self, seconds: float, arrived=0.0, caller: str | None = None, lane: Lane = LANE, **state) -> Utterance:
        """Add an utterance, of a caller of its own unless one is named."""
        self.added += 1
        part = Part(np.empty(0, np.float32), lane, caller or self.added, **state)
        utterance = Utterance(self.added, part, seconds, arrived, Answer())
        self.batcher.add(utterance)
        return utterance

    def next(self, now: float = 0.0, batch_seconds: float = 360.0, padded_seconds=(), **constants) -> list[Utterance]:
        """The next batch of an engine that has both models, by other constants of the batcher if any are named."""
        policies = dict.fromkeys((LANE.model, "other"), BatchPolicy(batch_seconds, padded_seconds))
        with mock.patch.dict(vars(batching), constants):
            return self.batcher.next_batch(now, policies)


def padded(batch: list[Utterance]) -> float:
    return len(batch) * max(utterance.seconds for utterance in batch)


@given(st.floats(0.1, 7200), st.floats(0, 1))
def test_an_utterance_lies_in_the_smallest_bucket_that_holds_it(longest, share):
    edges = bucket_edges(longest)
    seconds = longest * share

    index = pick_bucket(seconds, edges)

    assert edges == sorted(set(edges))
    assert edges[-1] == longest
    assert seconds <= edges[index]
    assert index == 0 or seconds > edges[index - 1]


@given(st.lists(st.tuples(SECONDS, st.sampled_from(LANES)), max_size=60), st.floats(1, 300))
def test_every_utterance_leaves_once_in_a_batch_of_its_decoder_and_none_is_empty_while_one_waits(waiting, budget):
    queue = Queue()
    added = [queue.add(seconds, lane=lane) for seconds, lane in waiting]

    left = []
    while len(queue.batcher):
        batch = queue.next(batch_seconds=budget)
        assert len({utterance.part.lane for utterance in batch}) == 1
        left += batch

    assert sorted(utterance.number for utterance in left) == [utterance.number for utterance in added]
    assert queue.next() == []


@given(st.lists(SECONDS, min_size=1, max_size=60), st.floats(1, 300), st.floats(0, 0.9))
def test_a_batch_keeps_its_budget_and_its_share_of_padding_across_buckets(lengths, budget, share):
    queue = Queue()
    for seconds in lengths:
        queue.add(seconds)

    while batch := queue.next(batch_seconds=budget, MAX_PADDING_SHARE=share):
        assert len(batch) == 1 or padded(batch) <= budget
        if len({pick_bucket(utterance.seconds, EDGES) for utterance in batch}) > 1:
            assert 1 - sum(utterance.seconds for utterance in batch) / padded(batch) <= share + 1e-9


@given(st.lists(SECONDS, min_size=1, max_size=60), st.floats(1, 300))
def test_where_the_device_pads_to_few_lengths_a_batch_of_these_stays_within_its_budget(lengths, budget):
    queue = Queue()
    for seconds in lengths:
        queue.add(seconds)

    while batch := queue.next(batch_seconds=budget, padded_seconds=EDGES):
        computed = next(edge for edge in EDGES if edge >= max(utterance.seconds for utterance in batch))
        assert len(batch) == 1 or len(batch) * computed <= budget * (1 + 1e-9)


MODELS = st.sampled_from((("m",), ("other",), ("m", "other")))


@settings(deadline=None)
@given(
    st.lists(st.tuples(SECONDS, st.sampled_from((LANE, Lane("other"))), st.booleans()), min_size=1, max_size=6),
    st.lists(MODELS, min_size=1, max_size=4),
    st.lists(st.sampled_from((0.1, 1.0, 60.0)), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_a_flood_starves_no_one(long, engines, flood, bound):
    """However late the turn, whoever asks: after the bound, and two batches for each that is overdue before it."""
    queue = Queue()
    waiting = [
        queue.add(seconds, caller="long", lane=lane, is_background=is_background, recording_seconds=3600.0)
        for seconds, lane, is_background in long
    ]
    most = bound + 2 * len(long) + len(set(engines))
    for step in range(most * len(engines)):
        now = float(step)
        for lane in (LANE, Lane("other")):
            for seconds in flood:
                queue.add(seconds, now, lane=lane)
        policies = dict.fromkeys(engines[step % len(engines)], BatchPolicy(0.1))
        with mock.patch.object(batching, "MAX_PASSED_OVER", bound):
            queue.batcher.next_batch(now + 0.5, policies)
        assert all(one.passed_over <= most for one in waiting)

    served = {model for models in engines for model in models}
    assert not [one for one in queue.batcher if one in waiting and one.part.lane.model in served]


@given(
    st.lists(
        st.tuples(SECONDS, st.floats(0, 100), st.sampled_from("abc"), st.sampled_from((0.0, 3600.0)), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.floats(1, 200),
)
def test_the_leader_has_the_highest_response_ratio_of_the_first_turn(waiting, budget):
    queue = Queue()
    for seconds, arrived, caller, recording_seconds, is_background in waiting:
        queue.add(seconds, arrived, caller, recording_seconds=recording_seconds, is_background=is_background)

    while remaining := list(queue.batcher):
        first = min((one.part.is_background, one.turn) for one in remaining)
        expected = max(
            (one for one in remaining if (one.part.is_background, one.turn) == first),
            key=lambda one: (
                (100.0 - one.arrived + max(one.seconds, one.part.recording_seconds))
                / max(one.seconds, one.part.recording_seconds),
                -one.number,
            ),
        )
        assert queue.next(100.0, batch_seconds=budget, MAX_PASSED_OVER=1000)[0] is expected


def test_once_a_batch_is_full_nobody_else_is_looked_at(monkeypatch):
    """Because thousands may wait, and the event loop stands still meanwhile."""
    queue, looked_at = Queue(), []
    for _ in range(1000):
        queue.add(10.0)
    monkeypatch.setattr(Batcher, "_is_clip", lambda self, one: looked_at.append(one) or True)

    assert len(queue.next(batch_seconds=100.0)) == 10
    assert len(set(looked_at)) == 10


def test_what_is_overdue_leads_every_second_batch():
    """Parts of long recordings that are overdue together do not go before the clips one after the other."""
    queue = Queue()
    parts = {queue.add(60.0, caller=name, recording_seconds=3600.0) for name in "abcd"}
    leaders = []
    for step in range(20):
        queue.add(1.0, arrived=float(step))
        leaders.append(queue.next(step + 0.5, batch_seconds=60.0, MAX_PASSED_OVER=4, MAX_PADDING_SHARE=0.0)[0])

    assert [leader in parts for leader in leaders[:11]] == [False] * 4 + [True, False] * 3 + [True]
    assert parts <= set(leaders)


@given(st.lists(st.floats(0.5, 60.0), min_size=1, max_size=12), st.floats(20, 300))
def test_while_clips_come_parts_of_an_hour_take_half_of_a_batch_at_most(clips, budget):
    queue = Queue()
    for clip in clips:
        for _ in range(12):
            queue.add(15.0, recording_seconds=3600.0)
        queue.add(clip)
        parts = [each.seconds for each in queue.next(batch_seconds=budget) if each.part.recording_seconds]
        assert len(parts) <= 1 or len(parts) * max(parts) <= budget / 2


def test_while_parts_wait_clips_may_pad_a_batch_half_as_much_again():
    for parts, together in ((0, 1), (1, 2)):
        queue = Queue()
        queue.add(8.0)
        queue.add(4.0)  # 25 % of the batch would be padding
        for _ in range(parts):
            queue.add(50.0, recording_seconds=3600.0)

        assert len(queue.next(batch_seconds=20.0, MAX_PADDING_SHARE=0.2)) == together


def test_without_clips_parts_of_an_hour_fill_their_batches_again():
    queue = Queue()
    for _ in range(200):
        queue.add(15.0, recording_seconds=3600.0)
    assert len(queue.next(batch_seconds=120.0)) == 8

    queue.add(3.0)
    sizes = [len(queue.next(batch_seconds=120.0)) for _ in range(30)]

    assert sizes[0] == 5  # with the clip
    assert sizes[1:25] == [4] * 24
    assert sizes[25:] == [8] * 5


def test_an_abandoned_utterance_is_not_computed():
    queue = Queue()
    gone, stays = queue.add(1.0), queue.add(1.0)
    gone.answer.cancelled = True

    assert queue.next() == [stays]
    assert queue.next() == []


def test_utterances_of_a_lost_engine_take_their_old_places_in_the_queue():
    queue = Queue()
    first = queue.add(1.0, arrived=0.0)
    assert queue.next() == [first]
    queue.add(1.0, arrived=1.0)

    queue.batcher.add(first)

    assert queue.next()[0] is first


def test_mixed_lengths_pad_little():
    """0.2 s to 60 s, 500 waiting: the batches waste under a fifth of their frames and are well filled."""
    queue = Queue(Batcher(bucket_edges(60.0)))
    for seconds in np.random.default_rng(5).uniform(0.2, 60, 500):
        queue.add(float(seconds))

    batches = []
    while batch := queue.next(batch_seconds=240.0):
        batches.append(batch)

    audio = sum(utterance.seconds for batch in batches for utterance in batch)
    assert 1 - audio / sum(map(padded, batches)) < 0.2
    assert 500 / len(batches) > 4


def test_utterances_for_a_model_that_is_not_loaded_wait_without_blocking_others():
    queue = Queue()
    absent = queue.add(1.0, lane=Lane("absent"))
    others = [queue.add(1.0, arrived=1.0) for _ in range(20)]

    for other in others:
        assert queue.next(now=50.0, batch_seconds=1.0, MAX_PASSED_OVER=3) == [other]

    assert queue.next(now=50.0) == []
    assert queue.batcher.next_batch(51.0, {"absent": BatchPolicy(360.0)}) == [absent]


TIMED = Prompt(timestamps=True)


def test_texts_with_times_are_batched_together_if_there_are_enough():
    queue = Queue()
    for number in range(16):
        queue.add(8.0, prompt=TIMED if number % 2 else Prompt())

    batches = [queue.next(batch_seconds=64.0) for _ in range(2)]

    assert [len(batch) for batch in batches] == [8, 8]
    assert [{utterance.part.prompt.timestamps for utterance in batch} for batch in batches] == [{False}, {True}]


def test_texts_with_and_without_times_share_a_batch_that_would_be_emptier():
    queue = Queue()
    for number in range(6):
        queue.add(8.0, prompt=TIMED if number % 2 else Prompt())

    assert len(queue.next(batch_seconds=64.0)) == 6


@given(
    st.lists(st.tuples(SECONDS, st.booleans()), min_size=1, max_size=40),
    st.floats(1, 300),
)
def test_background_work_leads_only_if_nothing_else_waits(waiting, budget):
    queue = Queue()
    for seconds, is_background in waiting:
        queue.add(seconds, is_background=is_background)

    while len(queue.batcher):
        was_awaited = any(not utterance.part.is_background for utterance in queue.batcher)
        batch = queue.next(batch_seconds=budget, MAX_PASSED_OVER=1000)
        assert batch[0].part.is_background is not was_awaited
        in_background = [utterance.part.is_background for utterance in batch]
        assert in_background == sorted(in_background)  # it takes what room the others left


def test_background_work_that_waits_does_not_give_newcomers_earlier_turns():
    """A job that waits at its first turn must not put a new caller before callers that had many turns."""
    queue = Queue()
    queue.add(60.0, caller="job", is_background=True)
    for _ in range(5):
        queue.add(60.0, caller="regular")
    for _ in range(4):
        queue.next(batch_seconds=60.0, MAX_PASSED_OVER=1000)
    newcomers = [queue.add(60.0, caller="newcomer") for _ in range(3)]

    led = [queue.next(batch_seconds=60.0, MAX_PASSED_OVER=1000)[0].part.caller for _ in range(4)]

    assert led.index("regular") <= 1
    assert led.count("newcomer") == len(newcomers)
