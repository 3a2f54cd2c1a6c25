"""The dispatcher with simulated engines and clients in virtual time: thousands of days of bad luck, each from a seed.

Engines take a time that depends on the batch, fail, run out of memory, and die, by themselves or of a poisoned
utterance; a successor takes a while, like a supervisor's. Clients come in bursts, some leave, some have little time.
After every event it is checked that nothing accepted is lost or in two places, that no engine stands idle while
something waits for it, that batches keep their bounds, and that nobody is passed over too often.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from service.dispatch import batcher as batching
from service.dispatch.admission import AdmissionLimits
from service.dispatch.catalog import Catalog
from service.dispatch.dispatcher import Dispatcher
from service.dispatch.errors import (
    DeadlineExceededError,
    DeviceMemoryError,
    EngineLostError,
    TranscriptionFailedError,
)
from service.dispatch.utterance import Lane, Part
from service.engine.protocol import Failure, FailureKind, ModelInfo, Ready, Result
from service.metrics import Metrics
from tests.service.dispatch.virtual_time import DeadlockError, run
from transcripts.transcript import Transcript

RATE = 10
EDGES = [1.0, 2.0, 4.0, 8.0, 16.0, 40.0]
MOST_PASSED_OVER = 4
BUDGET = 120.0
RTFX = 20.0
MODELS = ("m", "other")
LANES = (Lane("m"), Lane("m", "ctc"), Lane("other"))
# What an utterance does, by its second sample; the first one is who it is.
FINE, FAILS, KILLS, TOO_LARGE = range(4)
METRICS = Metrics()


@dataclass(eq=False)
class SimulatedEngine:
    """Computes one batch after the other, each in its time."""

    world: "World"
    name: str
    slots: int
    is_alive: bool = True
    models: dict[str, Ready] = field(default_factory=dict)
    batches: dict[int, list] = field(default_factory=dict)
    works_until: float = 0.0

    @property
    def free_slots(self) -> int:
        return self.slots - len(self.batches)

    def take_slot(self, number: int) -> None:
        assert self.is_alive, "a batch is for an engine that is gone"
        assert self.free_slots > 0, "a batch has no free slot"
        self.batches[number] = []

    async def send(self, batch, utterances) -> None:
        assert batch.model in self.models, "a batch is for a model that is not there"
        assert len(utterances) == len(batch.prompts) > 0
        assert batch.engines > 0, "the engine with the batch does not count"
        longest = max(map(len, utterances)) / RATE
        assert len(utterances) == 1 or longest * len(utterances) <= BUDGET, "a batch is over its budget"
        self.batches[batch.number] = [samples.copy() for samples in utterances]
        now = self.world.now
        takes = (0.05 + longest * len(utterances) / RTFX) * self.world.chance.choice((0.7, 1.0, 1.0, 5.0))
        self.works_until = max(now, self.works_until) + takes
        asyncio.get_running_loop().call_at(self.works_until, self.finish, batch.number, takes)

    def finish(self, number: int, took: float) -> None:
        if not self.is_alive:
            return
        batch = self.batches[number]
        does = Counter(int(samples[1]) for samples in batch)
        if does[KILLS] or self.world.chance.random() < self.world.deaths:
            self.world.lose(self)
            return
        del self.batches[number]
        padded = len(batch) * max(map(len, batch)) / RATE
        if does[FAILS]:
            answer = Failure(number, FailureKind.BATCH, "")
        elif does[TOO_LARGE] or (len(batch) > 1 and padded > self.world.room):
            answer = Failure(number, FailureKind.OUT_OF_MEMORY, "")
        else:
            answer = Result(number, [Transcript(str(int(one[0])), [], [], []) for one in batch], took, padded)
        self.world.front.engine_answered(self, answer)
        self.world.check()


class World:
    """Engines, their supervisor and clients, with the invariants that hold at any time."""

    def __init__(self, seed: int):
        self.chance = chance = random.Random(seed)
        limits = AdmissionLimits(10_000, 1 << 40, 1e9, 1e9, 1e9)
        self.front = Dispatcher(
            Catalog(dict.fromkeys(MODELS, "")),
            edges=EDGES,
            limits=limits,
            metrics=METRICS,
            clock=lambda: self.now,
        )
        self.ready = [
            Ready(model, ModelInfo("stub", "none", "float32"), [], RATE, BUDGET, 1, RTFX, 1, 1.0, 1.0)
            for model in MODELS
        ]
        for one in self.ready:
            self.front.catalog.ready(one)
        self.deaths = chance.choice((0.0, 0.0, 0.02, 0.1))
        self.room = chance.choice((1e9, 1e9, 60.0, 10.0))
        self.share_bad = chance.choice((0.0, 0.05, 0.2))
        self.engines: list[SimulatedEngine] = []
        self.slots = chance.choice((1, 2))
        self.answered: Counter[int] = Counter()

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def start(self, name: str) -> None:
        engine = SimulatedEngine(self, name, self.slots)
        self.engines.append(engine)
        self.front.engine_started(engine)
        for ready in self.ready:
            engine.models[ready.model] = ready = replace_struct(ready, slots=self.slots)
            self.front.engine_ready(engine, ready)
        self.check()

    def lose(self, engine: SimulatedEngine) -> None:
        """End the engine's process; the supervisor starts another one, which takes a while."""
        engine.is_alive = False
        self.engines.remove(engine)
        self.front.engine_lost(engine, "exit")
        self.check()
        asyncio.get_running_loop().call_later(self.chance.uniform(0.0, 8.0), self.start, engine.name)

    async def client(self, number: int) -> None:
        """Ask for one utterance, and check that the answer is one that is possible."""
        chance = self.chance
        await asyncio.sleep(chance.choice((0.0, chance.uniform(0, 30), 10.0, 20.0)))
        does = chance.choice((FAILS, KILLS, TOO_LARGE)) if chance.random() < self.share_bad else FINE
        seconds = chance.choice((chance.uniform(0.2, 2), chance.uniform(0.2, 40)))
        samples = np.zeros(max(2, int(RATE * seconds)), np.float32)
        samples[:2] = number, does
        caller = chance.choice((number, "a", "b"))
        lane, patience = chance.choice(LANES), chance.choice((5.0, 1e6, 1e6))
        part = Part(samples, lane, caller, self.now + patience, is_background=chance.random() < 0.1)
        asking = asyncio.create_task(self.front.transcribe(part))
        leaves = chance.random() < 0.1
        if leaves:
            asyncio.get_running_loop().call_later(chance.uniform(0, 5), asking.cancel)
        try:
            text = (await asking).transcript.text
            assert does == FINE, "it should have failed"
            assert text == str(number), "somebody else's transcript"
        except asyncio.CancelledError:
            assert leaves
        except DeadlineExceededError:
            assert patience < 1e6, "it was forgotten"
        except EngineLostError:
            assert does == KILLS or self.deaths > 0, "it was given up without reason"
        except TranscriptionFailedError:
            assert does == FAILS, "it was blamed for another"
        except DeviceMemoryError:
            assert does == TOO_LARGE, "it was blamed for another"
        self.answered[number] += 1
        self.check()

    def check(self) -> None:
        """Check all invariants."""
        batcher = self.front._batcher
        waiting = [one.number for one in batcher]
        held = {engine: work.batches for engine, work in self.front._engines.items() if work.batches}
        with_engines = [one.number for batches in held.values() for batch in batches.values() for one in batch]
        places = Counter([*waiting, *with_engines])
        assert all(count == 1 for count in places.values()), "an utterance is in two places"
        assert set(held) <= set(self.engines), "a batch is held by an engine that is gone"
        for one in batcher:
            # The bound, and every second batch for each that is overdue before it.
            most = MOST_PASSED_OVER + 2 * one.number
            assert one.passed_over <= most, "somebody is passed over too often"
            assert one.engines_lost < 2
        for batches in held.values():
            for batch in batches.values():
                assert len({one.part.lane for one in batch}) == 1, "lanes are mixed"
                assert len(batch) == 1 or not any(one.alone for one in batch), "a suspect has company"
                is_suspect = any(one.engines_lost for one in batch)
                assert len(batches) == 1 or not is_suspect, "a suspect has company in another batch"
        wanted = [one for one in batcher if not one.answer.done()]
        has_suspect = any(one.engines_lost for one in wanted)
        is_idle = any(self.should_be_busy(engine, has_suspect) for engine in self.engines)
        assert not (wanted and is_idle), "an engine stands idle while somebody waits"

    def should_be_busy(self, engine: SimulatedEngine, has_suspect: bool) -> bool:
        """Whether the engine should get waiting work: a suspect has an engine to itself."""
        held = self.front._engines[engine].held if engine in self.front._engines else []
        if any(one.engines_lost for one in held) or len(engine.models) < len(MODELS):
            return False
        return not held or (engine.free_slots > 0 and not has_suspect)


async def simulate(seed: int) -> None:
    world = World(seed)
    for index in range(world.chance.choice((1, 1, 2, 4))):
        world.start(f"cpu:{index}")
    count = world.chance.choice((5, 40, 120))
    async with asyncio.TaskGroup() as clients:
        for number in range(count):
            clients.create_task(world.client(number))
    assert world.answered == Counter(range(count)), "somebody was answered twice, or never"
    await asyncio.sleep(1000.0)  # abandoned batches are done
    world.check()
    assert len(world.front._batcher) == 0
    assert not any(work.batches for work in world.front._engines.values())


@pytest.fixture(autouse=True)
def _soon_overdue(monkeypatch):
    monkeypatch.setattr(batching, "MAX_PASSED_OVER", MOST_PASSED_OVER)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_nothing_is_lost_and_everything_is_answered(first):
    for seed in range(first, first + 50):
        try:
            run(simulate(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.long
def test_nothing_is_lost_in_five_thousand_days():
    for seed in range(1000, 6000):
        run(simulate(seed))


def test_a_simulation_notices_an_utterance_that_is_never_answered(monkeypatch):
    """Tests the checks: a dispatcher that forgets a batch of a lost engine is caught."""
    monkeypatch.setattr("service.dispatch.dispatcher.Dispatcher._run_alone", lambda self, utterance: None)
    caught = Counter()
    for seed in range(60):
        try:
            run(simulate(seed))
        except* (AssertionError, DeadlockError, EngineLostError) as errors:
            caught[type(errors.exceptions[0])] += 1
    assert caught
