import asyncio
from dataclasses import dataclass

import pytest

from service.dispatch.errors import (
    EngineLostError,
)
from service.dispatch.utterance import Lane
from service.engine.protocol import FailureKind, Result
from tests.asynchronous import asynchronous
from tests.service.dispatch.fake_engine import OTHER, READY, FakeEngine, ask, counted, dispatcher, settle
from transcripts.transcript import FlatTranscripts


@asynchronous
async def test_an_engine_is_told_how_many_compute_beside_it():
    front, one, other = dispatcher(), FakeEngine(), FakeEngine()
    front.engine_ready(one, READY)
    front.engine_ready(other, READY)
    asked = [ask(front, 1)]
    await settle()
    asked.append(ask(front, 2))
    await settle()
    assert (one.beside, other.beside) == ([0], [1])

    one.answer(front)
    other.answer(front)
    asked.append(ask(front, 3))
    await settle()
    assert one.beside == [0, 0]

    one.answer(front)
    await asyncio.gather(*asked)


@asynchronous
async def test_an_utterance_whose_caller_left_is_counted_once_even_if_its_engines_are_lost():
    front, engines = dispatcher(), [FakeEngine(), FakeEngine()]
    asked = ask(front, 1)
    for engine in engines:
        front.engine_ready(engine, READY)
        await settle()
        if engine is engines[1]:
            asked.cancel()
            await settle()
        front.engine_lost(engine, "exit")

    assert counted(front, "queue_dropped_total", reason="cancelled") == 1
    assert counted(front, "queue_dropped_total", reason="engine_lost") == 0


@asynchronous
async def test_a_late_answer_from_a_lost_engine_changes_nothing():
    front, lost, successor = dispatcher(), FakeEngine(), FakeEngine()
    front.engine_ready(lost, READY)
    asked = ask(front, 1)
    await settle()
    front.engine_lost(lost, "stuck")
    front.engine_ready(successor, READY)
    await settle()

    lost.answer(front)
    await settle()

    assert not asked.done()
    successor.answer(front)
    assert (await asked).transcript.text == "1.0"


@asynchronous
async def test_abandoned_work_fails_whether_it_waits_or_runs():
    front, engine = dispatcher(), FakeEngine()
    front.engine_ready(engine, READY)
    running, waiting = ask(front, 1), ask(front, 2)
    await settle()

    front.abandon(lambda: EngineLostError("no engine"))
    front.engine_lost(engine, "stopped")

    for asked in (running, waiting, ask(front, 3)):
        with pytest.raises(EngineLostError, match="no engine"):
            await asked


@pytest.mark.parametrize("error", [ValueError("no room"), MemoryError(), RuntimeError("can't start new thread")])
@asynchronous
async def test_a_batch_that_cannot_be_sent_is_split_and_every_caller_is_answered(error):
    @dataclass(eq=False)
    class SmallEngine(FakeEngine):
        async def send(self, batch, utterances) -> None:
            if len(utterances) > 1:
                del self.batches[batch.number]
                raise error
            await super().send(batch, utterances)

    front, engine = dispatcher(), SmallEngine()
    asked = [ask(front, value) for value in (1, 2, 3)]
    await settle()
    front.engine_ready(engine, READY)
    for _ in asked:
        await settle()
        engine.answer(front)

    assert [answer.transcript.text for answer in await asyncio.gather(*asked)] == ["1.0", "2.0", "3.0"]


@pytest.mark.parametrize("broken", [[], FlatTranscripts(["a", "b"], *[b""] * 10)], ids=["too few", "arrays"])
@asynchronous
async def test_answers_that_cannot_be_read_are_a_failed_batch_and_no_caller_waits_for_ever(broken):
    front, engine = dispatcher(), FakeEngine()
    asked = [ask(front, value) for value in (1, 2)]
    await settle()
    front.engine_ready(engine, READY)
    await settle()
    number, _ = engine.batches.popitem()
    front.engine_answered(engine, Result(number, broken, 0.1, 2.0))
    for _ in asked:
        await settle()
        engine.answer(front)

    assert [answer.transcript.text for answer in await asyncio.gather(*asked)] == ["1.0", "2.0"]


@asynchronous
async def test_a_batch_that_fails_when_no_engine_will_start_is_not_run_again():
    front, engine = dispatcher(), FakeEngine()
    asked = [ask(front, value) for value in (1, 2)]
    await settle()
    front.engine_ready(engine, READY)
    await settle()
    front.abandon(lambda: EngineLostError("It stops."))
    engine.fail(front, FailureKind.BATCH)
    await settle()

    assert not engine.batches
    for task in asked:
        with pytest.raises(EngineLostError, match="It stops"):
            task.result()


def test_readiness_follows_engines_and_draining():
    front, engine = dispatcher(models=("m", "other")), FakeEngine()
    front.catalog["other"].ready = None
    assert not front.is_ready

    front.engine_ready(engine, READY)
    assert not front.is_ready
    front.engine_ready(engine, OTHER)
    assert front.is_ready
    front.catalog.add("further", "")
    assert front.is_ready

    front.drain()
    assert not front.is_ready


@asynchronous
async def test_an_idle_engine_gets_a_batch_before_a_busy_one_gets_a_second():
    front, engines = dispatcher(), [FakeEngine("cuda:0", slots=2), FakeEngine("cuda:1", slots=2)]
    for engine in engines:
        front.engine_ready(engine, READY)
    asked = []
    for batches in [(1, 0), (1, 1), (2, 1), (2, 2)]:
        asked.append(ask(front, 1))
        await settle()
        assert tuple(len(engine.batches) for engine in engines) == batches

    for engine in 2 * engines:
        engine.answer(front)
    await asyncio.gather(*asked)


@asynchronous
async def test_models_share_an_engine_and_keep_their_own_batches_and_speeds():
    front, engine = dispatcher(models=("m", "other")), FakeEngine()
    lanes = (Lane("m"), Lane("other"), Lane("m", "ctc"))
    asked = [ask(front, value, lane=lanes[value]) for value in (0, 1, 2, 0)]
    await settle()
    front.engine_ready(engine, READY)
    front.engine_ready(engine, OTHER)
    for _ in lanes:
        await settle()
        engine.answer(front)
    await settle()

    assert [(await one).transcript.text for one in asked] == ["0.0", "1.0", "2.0", "0.0"]
    assert sorted(engine.asked, key=str) == [("m", "ctc"), ("m", None), ("other", None)]
    assert front.admission.rtfx["m"] < READY.rtfx  # measured by now
    assert front.admission.rtfx.keys() == {"m", "other"}


@asynchronous
async def test_a_model_that_did_not_survive_its_engine_is_given_up_and_the_others_go_on():
    front, lost, successor = dispatcher(models=("m", "other")), FakeEngine(), FakeEngine()
    front.engine_ready(lost, READY)
    front.engine_ready(lost, OTHER)
    asked = [ask(front, 1, lane=Lane("other")), ask(front, 2)]
    await settle()

    front.engine_lost(lost, "exit")
    front.engine_ready(successor, READY)
    front.model_lost("other", "no such file")
    await settle()
    successor.answer(front)

    with pytest.raises(EngineLostError, match="no such file"):
        await asked[0]
    assert (await asked[1]).transcript.text == "2.0"
    with pytest.raises(EngineLostError, match="was lost"):
        await ask(front, 3, lane=Lane("other"))
    assert front.is_ready
