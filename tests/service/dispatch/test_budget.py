"""Batches are made smaller when one does not fit, and larger again when they do."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from service.dispatch.batcher import Budget
from service.dispatch.errors import DeviceMemoryError
from service.engine.protocol import FailureKind
from tests.asynchronous import asynchronous
from tests.service.dispatch.fake_engine import RATE, READY, FakeEngine, ask, dispatcher, settle

FULL = READY.batch_seconds


def padded(samples: list) -> float:
    return len(samples) * max(map(len, samples)) / RATE


async def answer_within(front, engine: FakeEngine, memory: float, until) -> int:
    """Let the engine answer batches that fit its memory until all is answered; returns how many did not fit."""
    misfits = 0
    while not until():
        await settle()
        if not engine.batches:
            continue
        (samples,) = engine.batches.values()
        if padded(samples) > memory:
            misfits += 1
            engine.fail(front, FailureKind.OUT_OF_MEMORY)
        else:
            engine.answer(front)
    return misfits


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.5, 10.0), min_size=1, max_size=60), st.floats(1.0, 150.0))
@asynchronous
async def test_everything_that_fits_alone_is_answered_and_the_rest_is_an_error(lengths, memory):
    front, engine = dispatcher(), FakeEngine()
    front.engine_ready(engine, READY)
    asked = [ask(front, float(number), seconds) for number, seconds in enumerate(lengths)]
    await answer_within(front, engine, memory, lambda: all(task.done() for task in asked))
    for number, (task, seconds) in enumerate(zip(asked, lengths, strict=True)):
        if int(seconds * RATE) / RATE <= memory:
            assert task.result().transcript.text == str(float(number))
        else:
            assert isinstance(task.exception(), DeviceMemoryError)


@asynchronous
async def test_what_does_not_fit_together_runs_in_parts_and_batches_grow_again():
    front, engine = dispatcher(), FakeEngine()
    front.engine_ready(engine, READY)
    first = [ask(front, 1.0, 10.0) for _ in range(12)]
    misfits = await answer_within(front, engine, 40.0, lambda: all(task.done() for task in first))
    assert all(task.result() for task in first)
    # What came first left alone, at once; of the 110 s after it neither all fits nor a half, but a quarter does.
    assert misfits == 2

    batches = []
    while max(batches, default=0.0) <= 80.0:  # the others have given the memory back
        asked = [ask(front, 1.0, 10.0) for _ in range(24)]
        while not all(task.done() for task in asked):
            await settle()
            batches += [padded(samples) for samples in engine.batches.values()]
            engine.answer(front)
            await settle()
        assert batches[0] <= 40.0
        assert len(batches) < 2000


@asynchronous
async def test_utterances_run_alone_after_three_failed_batches():
    """If smaller batches do not help, each utterance runs alone, not in ever smaller batches."""

    front, engine = dispatcher(), FakeEngine()
    front.engine_ready(engine, READY)
    asked = [ask(front, float(number)) for number in range(40)]
    misfits = 0
    while not all(task.done() for task in asked):
        await settle()
        for samples in list(engine.batches.values()):
            if any(sample[0] == 7.0 for sample in samples):
                misfits += 1
                engine.fail(front, FailureKind.OUT_OF_MEMORY)
            else:
                engine.answer(front)
    failed = [number for number, task in enumerate(asked) if task.exception()]
    assert failed == [7]
    assert misfits <= 4


@given(st.lists(st.one_of(st.tuples(st.just("fit"), st.floats(0, 1)), st.tuples(st.just("misfit"), st.floats(0, 1)))))
def test_a_budget_stays_between_a_part_of_the_full_one_and_that(steps):
    budget = Budget(FULL)
    for what, share in steps:
        before = budget.seconds
        if what == "fit":
            budget.fit(share * before)
            assert before <= budget.seconds <= FULL
        else:
            budget.misfit(share * before)
            assert FULL / 32 <= budget.seconds <= max(before / 2, FULL / 32)


def test_a_constant_limit_is_exceeded_ever_more_rarely():
    budget, misfits = Budget(FULL), []
    for batch in range(4000):
        if budget.seconds > 0.7 * FULL:
            misfits.append(batch)
            budget.misfit(budget.seconds)
        else:
            budget.fit(budget.seconds)

    gaps = [later - earlier for earlier, later in pairwise(misfits)]
    assert gaps == sorted(gaps)
    assert len(misfits) <= 6


def test_a_batch_formed_before_the_budget_was_halved_does_not_halve_it_again():
    budget = Budget(FULL)
    for share in (1.0, 0.9):  # both slots of a device hold batches when its memory is taken
        budget.misfit(share * FULL)

    assert budget.seconds == FULL / 2


def test_small_batches_tell_nothing_about_large_ones():
    budget = Budget(FULL)
    budget.misfit(FULL)
    for _ in range(10_000):
        budget.fit(0.1 * budget.seconds)

    assert budget.seconds == FULL / 2
